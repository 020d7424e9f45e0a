"""What runs inside the images: baking and checking the kernel layer at build, the entrypoint and its probes at run."""
