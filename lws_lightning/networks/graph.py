"""Cuts a model with its own forward: torch.fx traces it, and the graph is cut where a single value passes."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F
from torchvision.models.maxvit import MaxVitBlock
from torchvision.models.vision_transformer import Encoder

from lws_lightning.networks.chain import REMEDY, Chain, CutError, as_block, begins_layer, chain_of, no_linear_at_end

__all__ = ["cut_graph"]

_CHAINS = (nn.Sequential, Encoder, MaxVitBlock)
"""Modules that are chains themselves and may be cut. All other modules stay whole."""


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        head_of_timm = type(m).__module__.startswith("timm.") and type(m).__name__.endswith("ClassifierHead")
        return type(m) not in _CHAINS and not head_of_timm


def cut_graph(model: nn.Module, what: str) -> Chain:
    """Cuts a classifier at the modules with weights that its forward calls.

    It is cut between two of them if exactly one value passes from one to the other; a branch around a module (a
    residual connection in the forward) keeps both in one layer.

    Args:
        model: The classifier.
        what: How messages refer to it.

    Raises:
        CutError: If it is not a chain.
    """
    graph = _read(model, what)
    head_node, head = _find_head(graph, model, what)
    features = head_node.all_input_nodes[0]
    needed = _ancestors(features)
    nodes = [node for node in graph.nodes if node in needed and node.op not in ("placeholder", "get_attr")]
    _refuse_lost_weights(graph, needed | {head_node}, model, what)
    image = next(node for node in graph.nodes if node.op == "placeholder")
    starts = [i for i, node in enumerate(nodes) if _begins(node, model)]
    segments = []
    first, value, crossings = 0, image, []
    for start in starts[1:]:
        passing = _passing(image, nodes, start, features)
        if len(passing) == 1:
            segments.append((nodes[first:start], value, passing[0]))
            first, value = start, passing[0]
        else:
            crossings.append((nodes[start].target, [node.name for node in passing]))
    segments.append((nodes[first:], value, features))
    if len(segments) == 1 and crossings:
        target, names = crossings[0]
        raise CutError(
            f"{what} is not a chain of layers: {len(names)} values pass the layer {target} ({', '.join(names)}), and "
            f"likewise everywhere else. Put the branches into a module of their own, or: {REMEDY}"
        )
    names = [str(next(node.target for node in part if _begins(node, model))) for part, _, _ in segments if starts]
    blocks = [_as_module(part, source, result, model) for part, source, result in segments]
    return chain_of(names, blocks, head, what)


def _read(model: nn.Module, what: str) -> fx.Graph:
    modes = [(module, module.training) for module in model.modules()]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _Tracer().trace(model.eval(), _defaults(model))
    except Exception as error:  # a user's forward may raise anything when given proxies
        raise CutError(
            f"{what} cannot be cut into layers: torch.fx cannot read its forward: {error}. {REMEDY}"
        ) from error
    finally:
        for module, mode in modes:
            module.training = mode


def _defaults(model: nn.Module) -> dict[str, Any]:
    """Returns the default values of a forward's arguments, except those of the images."""
    arguments = list(inspect.signature(model.forward).parameters.values())[1:]
    return {argument.name: argument.default for argument in arguments if argument.default is not argument.empty}


def _find_head(graph: fx.Graph, model: nn.Module, what: str) -> tuple[fx.Node, nn.Linear]:
    modules = dict(model.named_modules(remove_duplicate=False))
    node = next(node for node in graph.nodes if node.op == "output").args[0]
    head = _module_of(node, modules)
    while isinstance(head, nn.Identity):
        node = node.args[0]
        head = _module_of(node, modules)
    if not isinstance(head, nn.Linear):
        raise no_linear_at_end(what, str(node) if head is None else type(head).__name__)
    assert isinstance(node, fx.Node)
    return node, head


def _module_of(node: Any, modules: Mapping[str, nn.Module]) -> nn.Module | None:
    return modules[str(node.target)] if isinstance(node, fx.Node) and node.op == "call_module" else None


def _ancestors(node: fx.Node) -> set[fx.Node]:
    """Returns a node and all nodes that it depends on."""
    ancestors, pending = {node}, [node]
    while pending:
        new = [source for source in pending.pop().all_input_nodes if source not in ancestors]
        ancestors.update(new)
        pending += new
    return ancestors


def _refuse_lost_weights(graph: fx.Graph, needed: set[fx.Node], model: nn.Module, what: str) -> None:
    used = tuple(str(node.target) for node in needed if node.op in ("call_module", "get_attr"))
    for name, _ in model.named_parameters():
        if not any(name == place or name.startswith(f"{place}.") for place in used):
            raise CutError(
                f"{what} has weights that are not on the path from the image to the logits and would be lost, for "
                f"example {name} (an auxiliary classifier?). Build it without them, or: {REMEDY}"
            )


def _begins(node: fx.Node, model: nn.Module) -> bool:
    return node.op == "call_module" and begins_layer(model.get_submodule(str(node.target)))


def _passing(image: fx.Node, nodes: Sequence[fx.Node], start: int, features: fx.Node) -> list[fx.Node]:
    """Returns the values computed before a position that are used after it."""
    later = set(nodes[start:])
    return [node for node in [image, *nodes[:start]] if node is features or any(user in later for user in node.users)]


def _as_module(nodes: Sequence[fx.Node], source: fx.Node, result: fx.Node, model: nn.Module) -> nn.Module:
    """Converts a part of a graph to a module: an `nn.Sequential` if possible, else a `GraphModule`."""
    modules = _as_sequence(nodes, source, model)
    if modules is not None:
        return as_block(modules)
    graph = fx.Graph()
    values = {source: graph.placeholder("input")}
    for node in nodes:
        for constant in node.all_input_nodes:
            if constant.op == "get_attr" and constant not in values:
                values[constant] = graph.node_copy(constant)
        values[node] = graph.node_copy(node, values.__getitem__)
    graph.output(values[result])
    return fx.GraphModule(model, graph)


def _as_sequence(nodes: Sequence[fx.Node], source: fx.Node, model: nn.Module) -> list[nn.Module] | None:
    modules: list[nn.Module] = []
    for node in nodes:
        node_modules = _equivalent_modules(node, model)
        if node.all_input_nodes != [source] or node_modules is None:
            return None
        modules += node_modules
        source = node
    return modules


def _equivalent_modules(node: fx.Node, model: nn.Module) -> list[nn.Module] | None:
    """Returns modules equivalent to a node with one input, or None."""
    options = (*node.args[1:], *sorted(node.kwargs.items()))
    if node.op == "call_module":
        return [model.get_submodule(str(node.target))] if not options else None
    if node.target in (torch.flatten, "flatten") and options in ((1,), (("start_dim", 1),)):
        return [nn.Flatten()]
    if node.target in (F.relu, torch.relu, "relu") and options in ((), (("inplace", True),)):
        return [nn.ReLU()]
    if node.target is F.adaptive_avg_pool2d and len(node.args) == 2:
        return [nn.AdaptiveAvgPool2d(node.args[1])]  # type: ignore[arg-type]
    if node.target in (torch.mean, "mean") and options == ([2, 3],):
        return [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return None
