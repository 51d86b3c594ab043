"""Makes layouts/*.safetensors: one weight [64, 256] as public packages store it, with the values
that they read back ("expected") and the quantization_config that they write.

    python3 tests/formats/make_layouts.py

Needs torch, compressed-tensors 0.20, auto-gptq 0.7.1 and the file awq/utils/packing_utils.py of
AutoAWQ 0.2.9 importable. The tests need none of them.
"""

import importlib.util
import json
import pathlib

import numpy as np
import torch

import stored

HERE = pathlib.Path(__file__).resolve().parent / "layouts"
ROWS, COLUMNS = 64, 256
KINDS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32",
         torch.int64: "I64", torch.uint8: "U8", torch.int8: "I8", torch.float8_e4m3fn: "F8_E4M3"}


def bits(tensor):
    tensor = tensor.detach().contiguous().cpu()
    kind = KINDS[tensor.dtype]
    if kind == "BF16":
        return kind, tensor.view(torch.int16).numpy().view(np.uint16)
    if kind == "F8_E4M3":
        return kind, tensor.view(torch.uint8).numpy()
    return kind, tensor.numpy()


def save(name, parts, expected, config):
    tensors = {key: bits(value) for key, value in parts.items()}
    tensors["expected"] = ("F32", expected.to(torch.float32).numpy())
    stored.write(HERE / f"{name}.safetensors", tensors,
                 {"quantization_config": json.dumps(config)})


def weight(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS, COLUMNS, generator=generator) * 0.05


def compressed(name, format_name, weights, parts, seed):
    """One weight through a compressor of compressed-tensors, there and back."""
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))
    compressor = BaseCompressor.get_value_from_registry(format_name)
    packed = compressor.compress({"weight": weight(seed), **parts}, scheme)
    if "weight_global_scale" in packed:  # decompress() computes in bf16: the same steps in fp32
        codes = unpack_fp4_from_uint8(packed["weight_packed"], ROWS, COLUMNS, torch.float32)
        expected = dequantize(codes, packed["weight_scale"].float(), args=scheme.weights,
                              global_scale=packed["weight_global_scale"], dtype=torch.float32)
    else:
        expected = compressor.decompress(packed, scheme)["weight"]
    config = {"quant_method": "compressed-tensors", "format": format_name, "ignore": ["lm_head"],
              "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}
    save(name, packed, expected, config)


def group_scales(values, group, steps):
    top = values.reshape(ROWS, -1, group).abs().amax(-1)
    return top / steps


def with_compressed_tensors():
    channel = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
    compressed("fp8_channel", "float-quantized", channel,
               {"weight_scale": (weight(1).abs().amax(1, keepdim=True) / 448)}, 1)
    whole = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
    compressed("int8_channel", "int-quantized", whole,
               {"weight_scale": (weight(2).abs().amax(1, keepdim=True) / 127)}, 2)
    group = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32,
             "symmetric": True}
    compressed("int4_group", "pack-quantized", group,
               {"weight_scale": group_scales(weight(3), 32, 7.5)}, 3)
    zeros = torch.randint(-8, 8, (ROWS, COLUMNS // 64), dtype=torch.int8,
                          generator=torch.Generator().manual_seed(4))
    compressed("int4_group_zero_points", "pack-quantized",
               {**group, "group_size": 64, "symmetric": False},
               {"weight_scale": group_scales(weight(4), 64, 7.5), "weight_zero_point": zeros}, 4)
    values = weight(5)
    factor = 448 * 6 / values.abs().max()
    scale = (group_scales(values, 16, 6) * factor).to(torch.float8_e4m3fn).to(torch.float32)
    compressed("nvfp4", "nvfp4-pack-quantized",
               {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
                "symmetric": True},
               {"weight_scale": scale, "weight_global_scale": factor.reshape(1)}, 5)
    powers = torch.exp2(torch.ceil(torch.log2(group_scales(weight(6), 32, 6))))
    compressed("mxfp4", "mxfp4-pack-quantized",
               {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32,
                "symmetric": True, "scale_dtype": "torch.uint8"},
               {"weight_scale": powers}, 6)


def load_file(package, path):
    """A file of a package without the rest of the package."""
    base = pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0])
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, base / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_auto_gptq():
    module = load_file("auto_gptq", "nn_modules/qlinear/qlinear_cuda_old.py")
    group = 64
    linear = torch.nn.Linear(COLUMNS, ROWS, bias=False)
    values = weight(7)
    low = values.reshape(ROWS, -1, group).amin(-1)
    high = values.reshape(ROWS, -1, group).amax(-1)
    scale = ((high - low) / 15).half().float()
    zeros = torch.clamp(torch.round(-low / scale), 1, 15)
    group_of = torch.arange(COLUMNS) // group
    codes = torch.clamp(torch.round(values / scale[:, group_of]) + zeros[:, group_of], 0, 15)
    expected = (codes - zeros[:, group_of]) * scale[:, group_of]
    linear.weight.data = expected.clone()
    packed = module.QuantLinear(4, group, COLUMNS, ROWS, bias=False,
                                weight_dtype=torch.float32)
    packed.pack(linear, scale, zeros, g_idx=None)
    parts = {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": scale.T.half(),
             "g_idx": group_of.to(torch.int32)}
    config = {"quant_method": "gptq", "bits": 4, "group_size": group, "sym": False,
              "desc_act": False}
    save("gptq", parts, expected, config)


def with_auto_awq():
    module = load_file("awq", "utils/packing_utils.py")
    group = 64
    generator = torch.Generator().manual_seed(8)
    words = torch.randint(-2**31, 2**31 - 1, (COLUMNS, ROWS // 8), generator=generator)
    zeros = torch.randint(-2**31, 2**31 - 1, (COLUMNS // group, ROWS // 8), generator=generator)
    scale = (torch.rand(COLUMNS // group, ROWS, generator=generator) * 0.01 + 1e-3).half()
    parts = {"qweight": words.to(torch.int32), "qzeros": zeros.to(torch.int32), "scales": scale}
    expected = module.dequantize_gemm(parts["qweight"], parts["qzeros"], scale.float(), 4, group)
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True,
              "version": "gemm"}
    save("awq", parts, expected.T.contiguous(), config)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    with_compressed_tensors()
    with_auto_gptq()
    with_auto_awq()
