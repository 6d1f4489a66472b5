"""The Neuron backend: static graphs as pure functions, compiled by AWS's neuronx-cc."""
