"""
Remove JPEG artefacts
=====================

A JPEG file stores rounded coefficients and the tables they were rounded with. They tell in which
interval each coefficient was: the restored image stays in these intervals.
"""

import tempfile
from importlib.resources import files
from pathlib import Path

import matplotlib.pyplot as plt

import pnpcm
from pnpcm.io.files import read_image, to_picture
from pnpcm.metrics import psnr
from pnpcm.problems import Jpeg

# %%
# A real file of quality 10, written and read by Pillow.

photo = "Picture_0B_by_freespace.png"
x_true = read_image(files("pnpcm") / "data" / photo)[..., 64:192, 64:192]
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "old.jpg"
    to_picture(x_true[0]).save(path, quality=10)
    size = path.stat().st_size
    y = read_image(path)

# %%
# ``pnpcm restore old.jpg --task jpeg`` reads the tables of the file; here the quality is known.

restoration = pnpcm.restore(y, Jpeg(quality=10), sigma_y=0)
figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
panels = {f"JPEG, {size} bytes": y, "restored": restoration.x, "true": x_true}
for axis, (title, image) in zip(axes, panels.items(), strict=True):
    axis.imshow(to_picture(image[0]))
    axis.set_title(title)
    axis.axis("off")
print(
    f"PSNR {float(psnr(y, x_true)):.2f} → {float(psnr(restoration.x, x_true)):.2f} dB in "
    f"{restoration.result.nfe} evaluations."
)
