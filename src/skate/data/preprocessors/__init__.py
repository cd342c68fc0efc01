"""Preprocessors: scale, encode, fill, hash, tokenize and combine columns.

A preprocessor that needs statistics is fitted to a dataset. It transforms datasets lazily and batches immediately.

>>> import skate
>>> from skate.data.preprocessors import MinMaxScaler
>>> scaler = MinMaxScaler(columns=["id"])
>>> scaler.fit_transform(skate.data.range(3)).take_all()
[{'id': 0.0}, {'id': 0.5}, {'id': 1.0}]
>>> scaler.stats_
{'min(id)': 0, 'max(id)': 2}
"""

from skate.data.preprocessors.chain import Chain
from skate.data.preprocessors.concatenator import Concatenator
from skate.data.preprocessors.discretizer import CustomKBinsDiscretizer, UniformKBinsDiscretizer
from skate.data.preprocessors.encoder import (
    Categorizer,
    LabelEncoder,
    MultiHotEncoder,
    OneHotEncoder,
    OrdinalEncoder,
)
from skate.data.preprocessors.hasher import FeatureHasher
from skate.data.preprocessors.imputer import SimpleImputer
from skate.data.preprocessors.normalizer import Normalizer
from skate.data.preprocessors.scaler import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from skate.data.preprocessors.tokenizer import Tokenizer
from skate.data.preprocessors.torch import TorchVisionPreprocessor
from skate.data.preprocessors.transformer import PowerTransformer
from skate.data.preprocessors.vectorizer import CountVectorizer, HashingVectorizer

__all__ = [
    "Categorizer",
    "Chain",
    "Concatenator",
    "CountVectorizer",
    "CustomKBinsDiscretizer",
    "FeatureHasher",
    "HashingVectorizer",
    "LabelEncoder",
    "MaxAbsScaler",
    "MinMaxScaler",
    "MultiHotEncoder",
    "Normalizer",
    "OneHotEncoder",
    "OrdinalEncoder",
    "PowerTransformer",
    "RobustScaler",
    "SimpleImputer",
    "StandardScaler",
    "Tokenizer",
    "TorchVisionPreprocessor",
    "UniformKBinsDiscretizer",
]
