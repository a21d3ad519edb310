"""Files in and out: atomic writes, pictures, photographs of any bit depth."""
