"""Scoped functions: TF1's variable scopes in Keras 3 models, eager mode, `tf.function` and TF1 graphs."""

from zoo.scoping.args import *  # noqa: F403
from zoo.scoping.frames import ScopeError, VariableScope, current_frame, get_variable_scope
from zoo.scoping.functions import find_function, function_name, register_function
from zoo.scoping.layer import Scope
from zoo.scoping.model import Model
from zoo.scoping.variables import (
    AUTO_REUSE,
    add_to_collection,
    get_collection,
    get_variable,
    in_graph,
    no_regularizer,
    random_seed,
    scope_is_frozen,
    variable_scope,
    variable_store,
)
