# %% [markdown]
# # Few labels and a trained network: frozen features
#
# If you have a network that was trained on something similar, let it turn your images into
# features, and give those to `SaaSClassifier`: better and faster than training from nothing. Any
# `nn.Module` will do, such as one of timm, torchvision or transformers without its last layer.
# Nothing is downloaded here, so this example trains its own on other people's digits, and uses it
# for blurred and noisy ones of yours.
#
#     python docs/examples/frozen_features.py

# %%
import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits
from torch import nn

from saas_ssl import SaaSClassifier, embed

folder = Path("frozen_features")
folder.mkdir(parents=True, exist_ok=True)
digits, draws = load_digits(), np.random.default_rng(0)
images = digits.images * (255 / 16)
theirs = images[:900].astype(np.uint8)
blurred = gaussian_filter(images[900:], (0, 0.5, 0.5)) + draws.normal(0, 30, size=(897, 8, 8))
yours, truth = blurred.clip(0, 255).astype(np.uint8), digits.target[900:]

# %% [markdown]
# The "pretrained" network: 900 images with all their labels, and no unlabelled ones. Without its
# last layer it gives 64 features.

# %%
trained = SaaSClassifier(random_state=0).fit(theirs, digits.target[:900])
backbone = nn.Sequential(*list(trained.network_.children())[:-1])

# %% [markdown]
# Pretrained networks come with the mean and standard deviation of the channels that they want;
# ours are those of the images it has seen.

# %%
mean, std = [theirs.mean() / 255], [theirs.std() / 255]
features = embed(yours, backbone, mean=mean, std=std)
print(f"{features.shape[0]} images, {features.shape[1]} features each")

# %% [markdown]
# Two labels of each digit.

# %%
known = np.concatenate([draws.permutation(np.flatnonzero(truth == k))[:2] for k in range(10)])
y = np.full(len(truth), -1)
y[known] = truth[known]
unlabelled = y == -1


def accuracy(model: SaaSClassifier) -> float:
    """Of the labels that were inferred."""
    return float(np.mean(model.transduction_[unlabelled] == truth[unlabelled]))


# %%
on_features = SaaSClassifier(random_state=0).fit(features, y)
labels_alone = SaaSClassifier(random_state=0, outer_iterations=0).fit(features, y)
on_pixels = SaaSClassifier(random_state=0).fit(yours, y)
print(f"features, SaaS:         {accuracy(on_features):.1%}")
print(f"features, labels alone: {accuracy(labels_alone):.1%}")
print(f"pixels, SaaS:           {accuracy(on_pixels):.1%}")

# %% [markdown]
# The same from the command line: `x` and `y` in an npz file, or a CSV file with a column for each
# feature and a column `label` that is empty where the label is not known.

# %%
np.savez(folder / "features.npz", x=features, y=y)
saas = Path(sys.executable).with_name("saas")
run = folder / "run"
subprocess.run(
    [saas, "label", folder / "features.npz", "--out", run, "--overwrite", "--quiet"],
    check=True,
)
with (run / "labels.csv").open(newline="", encoding="utf-8") as file:
    table = list(csv.DictReader(file))
found = np.array([int(row["label"]) for row in table])[unlabelled]
print(f"saas label:             {np.mean(found == truth[unlabelled]):.1%}")

# %% [markdown]
# And new images: the estimator is saved without a pickle, and `saas predict` reads it, too.

# %%
on_features.save(folder / "model", overwrite=True)
again = SaaSClassifier.load(folder / "model")
print("the first new images:", again.predict(embed(yours[:5], backbone, mean=mean, std=std)))
