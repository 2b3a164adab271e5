"""What a DSPN is: nodes, template and top networks, parameters, validity, and ways to build."""

from dspn.structure.build import (
    Interface,
    NetworkBuilder,
    assemble,
    factored,
    grouped_network,
    initial_network,
    interfaces_read,
    mixture_top,
    naive_bayes,
    product_of_naive_bayes,
    univariate,
)
from dspn.structure.dbn import DbnStructure, DbnTables, dbn_schema, from_dbn, random_tables
from dspn.structure.edit import marginal, side_by_side, united
from dspn.structure.hmm import from_hmm
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.nodes import Input, Leaf, Node, Product, Sum
from dspn.structure.parameters import NetworkParameters, Parameters
from dspn.structure.template import Bank, Template, Top
from dspn.structure.transitions import Transitions
from dspn.structure.unroll import StaticNetwork, unroll
from dspn.structure.validity import Rule, Violation, violations

__all__ = [
    "Bank", "DbnStructure", "DbnTables", "DynamicNetwork", "Input", "Interface", "Leaf", "Mixture",
    "NetworkBuilder", "NetworkParameters", "Node", "Parameters", "Product", "Root", "Rule",
    "StaticNetwork", "Sum", "Template", "Top", "Transitions", "Violation", "assemble", "dbn_schema",
    "factored", "from_dbn", "from_hmm", "grouped_network", "initial_network", "interfaces_read",
    "marginal", "mixture_top", "naive_bayes", "product_of_naive_bayes", "random_tables",
    "side_by_side", "united", "univariate", "unroll", "violations",
]  # fmt: skip
