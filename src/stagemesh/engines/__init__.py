"""One file or folder per engine. The declaration is free of torch; the factory it refers to is not."""
