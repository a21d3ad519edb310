"""Image I/O: atomic writes, 8-bit images, photographs of 8 and 16 bits."""
