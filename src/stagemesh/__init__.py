"""stagemesh: plan and run multi-stage generative models under one small strategy file."""
