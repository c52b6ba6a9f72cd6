"""Scoped functions: TF1's variable scopes in Keras 3 models, eager mode, `tf.function` and TF1 graphs."""

from zoo.scoping.args import (
    add_arg_scope,
    arg_scope,
    arg_scope_func_key,
    arg_scoped_arguments,
    current_arg_scope,
    has_arg_scope,
)
from zoo.scoping.frames import VariableScope, current_frame, drawn_once, get_variable_scope, random_seed
from zoo.scoping.initial import ScopeError
from zoo.scoping.layer import Scope
from zoo.scoping.loading import load_model
from zoo.scoping.model import Model
from zoo.scoping.names import check_options, find_function, function_name, register_function
from zoo.scoping.net_spec import USUAL_PARTS, NetSpec, Parts, describe, description_of, parts_of
from zoo.scoping.replicas import (
    Replicas,
    as_tower,
    replicas,
    sum_over_replicas,
    synchronized_batch_norm,
)
from zoo.scoping.specs import dense_tensor
from zoo.scoping.variables import (
    AUTO_REUSE,
    add_to_collection,
    get_collection,
    get_variable,
    in_graph,
    is_building,
    no_regularizer,
    scope_is_frozen,
    variable_scope,
    variable_store,
)

__all__ = [
    "AUTO_REUSE",
    "USUAL_PARTS",
    "Model",
    "NetSpec",
    "Parts",
    "Replicas",
    "Scope",
    "ScopeError",
    "VariableScope",
    "add_arg_scope",
    "add_to_collection",
    "arg_scope",
    "arg_scope_func_key",
    "arg_scoped_arguments",
    "as_tower",
    "check_options",
    "current_arg_scope",
    "current_frame",
    "dense_tensor",
    "describe",
    "description_of",
    "drawn_once",
    "find_function",
    "function_name",
    "get_collection",
    "get_variable",
    "get_variable_scope",
    "has_arg_scope",
    "in_graph",
    "is_building",
    "load_model",
    "no_regularizer",
    "parts_of",
    "random_seed",
    "register_function",
    "replicas",
    "scope_is_frozen",
    "sum_over_replicas",
    "synchronized_batch_norm",
    "variable_scope",
    "variable_store",
]
