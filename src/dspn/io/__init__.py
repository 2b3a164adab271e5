"""Model files: one model in one `*.dspn` file, written atomically and checked when it is read."""

from dspn.io.atomic import path_text as path_text
from dspn.io.atomic import write_atomically as write_atomically
from dspn.io.codec import LoadedClassifier as LoadedClassifier
from dspn.io.codec import LoadedMixture as LoadedMixture
from dspn.io.files import Path as Path
from dspn.io.files import load_any as load_any
from dspn.io.files import load_classifier as load_classifier
from dspn.io.files import load_mixture as load_mixture
from dspn.io.files import load_network as load_network
from dspn.io.files import save_classifier as save_classifier
from dspn.io.files import save_mixture as save_mixture
from dspn.io.files import save_network as save_network
from dspn.io.json_values import JSON as JSON
