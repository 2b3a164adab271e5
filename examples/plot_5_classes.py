"""
Classification of sequences
===========================

One model for each class and Bayes' rule give a classifier of whole sequences, of any length and
with missing entries. Its certainty grows with the number of slices.

The data are handwritten digits, which come with scikit-learn: images of eight rows with eight
pixels, dark or light. An image is a sequence of rows, read from the top.
"""

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import dspn

images, digits = load_digits(return_X_y=True)
images = (images.reshape(-1, 8, 8)[:, :, 1:] > 7).astype(float)  # the first column is empty
train, new, known, truth = train_test_split(
    images, digits, test_size=500, random_state=0, stratify=digits
)
pixels = dspn.Schema(tuple(dspn.Variable.binary(f"pixel {column}") for column in range(7)))
classifier = dspn.DSPNClassifier(dspn.HMM(16, schema=pixels), random_state=0)
classifier.fit(list(train), known)
print(f"right for {classifier.score(list(new), truth):.1%} of {len(new)} new images")

# %%
# Lost pixels need no treatment. With half of them missing:

rng = np.random.default_rng(0)
holes = np.where(rng.random(new.shape) < 0.5, np.nan, new)
print(f"right for {classifier.score(list(holes), truth):.1%} with every second pixel lost")

# %%
# The probability of the right digit, given the first rows of the image. Digits that begin alike are
# told apart when the rows come in which they differ.

rows = np.arange(1, 9)
chance = np.array(
    [
        classifier.predict_proba([image[:count] for image in new])[np.arange(len(new)), truth]
        for count in rows
    ]
)
figure = Figure(figsize=(10, 3.6), dpi=120, layout="constrained")
curves, examples = figure.subplots(1, 2, width_ratios=(3, 2))
for digit in (0, 1, 4, 7):
    curves.plot(rows, chance[:, truth == digit].mean(axis=1), "o-", label=str(digit))
curves.set(xlabel="rows seen", ylabel="mean P(right digit | rows seen)", ylim=(-0.02, 1.02))
curves.legend(title="digit", frameon=False)
first, second, third, fourth = (np.pad(new[truth == digit][0], 1) for digit in (0, 1, 4, 7))
examples.imshow(np.block([[first, second], [third, fourth]]), cmap="gray_r")
examples.set(xticks=[], yticks=[])
_ = examples.set_title("One image of each", loc="left")
