# %% [markdown]
# # 1,797 digits, 50 labels
#
# Each `# %%` begins a cell: open this file in Jupyter (with jupytext), VS Code or Spyder. As a
# script it writes its three figures into the folder `few_labels`:
#
#     python docs/examples/few_labels.py

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from saas_ssl import SaaSClassifier

folder = Path("few_labels")
folder.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# Five labels of each digit are known, and -1 means that a label is not.

# %%
digits = load_digits()
draws = np.random.default_rng(0)
known = [draws.permutation(np.flatnonzero(digits.target == k))[:5] for k in range(10)]
y = np.full(len(digits.target), -1)
y[np.concatenate(known)] = digits.target[np.concatenate(known)]
unlabelled = y == -1

# %% [markdown]
# The network, its augmentation and the length of everything follow from the data. `verbose=1`
# tells of each outer iteration: fresh networks learn the current labels, and the labels move to
# what is learned fastest.

# %%
model = SaaSClassifier(random_state=0, verbose=1).fit(digits.images, y)
inferred = model.transduction_[unlabelled]
print(f"right: {np.mean(inferred == digits.target[unlabelled]):.1%} of {len(inferred):,} labels")

# %% [markdown]
# The same network on the 50 labels alone, with as many image passes as phase two took:

# %%
alone = SaaSClassifier(random_state=0, outer_iterations=0).fit(digits.images, y)
guessed = alone.transduction_[unlabelled]
print(f"right without unlabelled images: {np.mean(guessed == digits.target[unlabelled]):.1%}")

# %% [markdown]
# **Learning speed.** The loss that networks sum up while they learn the labels of each outer
# iteration, and how many labels changed after it.

# %%
one = [line for line in model.history_ if line["phase"] == "one"]
outer = [line["outer"] + 1 for line in one]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.plot(outer, [line["cumulative_loss"] for line in one], marker="o")
left.set(xlabel="outer iteration", ylabel="cumulative loss", title="Learning speed", xticks=outer)
right.plot(outer, [100 * line["changed"] for line in one], marker="o", color="tab:orange")
right.set(xlabel="outer iteration", ylabel="% of labels", title="Changed labels", xticks=outer)
figure.savefig(folder / "learning_speed.png", dpi=100)

# %% [markdown]
# **The posterior.** A row of `label_distributions_` for each image. Most end at the largest value
# that the posterior can have, 1 - (K - 1) alpha = 0.55, so it tells which label, but not how sure
# that is.

# %%
posterior = model.label_distributions_[unlabelled]
order = np.argsort(inferred, kind="stable")
figure, axes = plt.subplots(figsize=(5, 5), layout="constrained")
picture = axes.imshow(posterior[order], aspect="auto", interpolation="nearest", cmap="viridis")
axes.set(xlabel="class", ylabel="unlabelled images, by their label", xticks=range(10))
figure.colorbar(picture, label="P_u")
figure.savefig(folder / "posterior.png", dpi=100)

# %% [markdown]
# **What to look at.** The classifier's own probability of the label that was inferred says more:
# here are the images with the lowest. Red titles are wrong.

# %%
f = model.predict_proba(digits.images)
labels = np.searchsorted(model.classes_, model.transduction_)
probability = np.where(unlabelled, f[np.arange(len(f)), labels], np.inf)
uncertain = np.argsort(probability)[:24]
figure, grid = plt.subplots(3, 8, figsize=(9, 4), layout="constrained")
for axes, row in zip(grid.flat, uncertain, strict=True):
    axes.imshow(digits.images[row], cmap="gray_r")
    right_or_not = model.transduction_[row] == digits.target[row]
    axes.set_title(f"{model.transduction_[row]}?", color="black" if right_or_not else "red")
    axes.axis("off")
figure.savefig(folder / "most_uncertain.png", dpi=100)
wrong = model.transduction_ != digits.target
print(f"{wrong[uncertain].sum()} of the {wrong.sum()} wrong labels are among these 24")
