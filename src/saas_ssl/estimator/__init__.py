"""SaaSClassifier: the algorithm by the conventions of scikit-learn.

Here live the estimator, the labels of a notebook, and how a fitted one is saved without a pickle.
In come arrays or frames with a few labels; out comes a classifier with the label of every row.
"""

from saas_ssl.estimator.classifier import SaaSClassifier

__all__ = ["SaaSClassifier"]
