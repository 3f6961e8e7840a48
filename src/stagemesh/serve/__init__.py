"""The system as a server: HTTP for users, a control socket for whoever runs it."""
