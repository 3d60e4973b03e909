# Makes data/huggingface-archs.json again, or adds a family to it:
#
#   python3 huggingface-archs.py LLAMA.CPP                       every folder: logits of transformers, file of llama.cpp's converter
#   python3 huggingface-archs.py LLAMA.CPP gemma2 phi3           these
#   python3 huggingface-archs.py LLAMA.CPP --add TYPE 'JSON'     a new one: transformers' configuration with these changes
#
# LLAMA.CPP is a checkout. Needs torch, transformers, safetensors, numpy. A vocabulary is not converted: tokenizer tests do that.
import hashlib, json, os, sys, tempfile, traceback, zlib
import numpy as np

LLAMA = sys.argv[1]
sys.path[:0] = [LLAMA, LLAMA + "/gguf-py"]
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
import convert_hf_to_gguf, conversion, conversion.base, conversion.llama, gguf

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "huggingface-archs.json")
PROMPT = [1, 40, 77, 5, 120, 33, 200, 11, 90, 60, 61, 62]
VOCAB = 267
COMMON = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              head_dim=16, vocab_size=VOCAB, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
TYPES = {"uint32": "u32", "int32": "i32", "float32": "f32", "array<int32>": "array<i32>", "array<float32>": "array<f32>"}


def values(name, shape, center, spread):
    """The formula of huggingface-archs.ts."""
    x = (np.arange(int(np.prod(shape)), dtype=np.uint64) * np.uint64(0x9E3779B1) + np.uint64(zlib.crc32(name.encode())))
    x = x.astype(np.uint32)
    x ^= x >> np.uint32(16)
    x = x * np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    x = x * np.uint32(0xC2B2AE35)
    x ^= x >> np.uint32(16)
    unit = (x >> np.uint32(8)).astype(np.float64) / 2**24 * 2 - 1
    return (center + spread * unit).astype(np.float32).reshape(shape)


def rule(name):
    """Center and spread; norms that are stored as their difference from 1 need 0 (change it in the JSON)."""
    if name.endswith("A_log"):
        return 0.5, 0.5
    if "norm" in name and name.endswith("weight") or name.endswith(".D"):
        return 1.0, 0.3
    if "bias" in name:
        return 0.0, 0.1
    return (0.0, 1.0) if "embed" in name or "wte" in name else (0.0, 0.35)


def new_folder(model_type, changes):
    cls = CONFIG_MAPPING[model_type]
    known = set(cls().to_dict())
    args = {k: v for k, v in {**COMMON, **changes}.items() if k in known or k in changes}
    with tempfile.TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(cls(**args)).float().save_pretrained(folder)
        tensors = {}
        for name, tensor in load_file(folder + "/model.safetensors").items():
            center, spread = rule(name)
            shapes = tensors.setdefault(f"{center},{spread}", {})
            shapes.setdefault(",".join(map(str, tensor.shape)), []).append(name)
        return dict(config=json.load(open(folder + "/config.json")), tensors=tensors)


def write_folder(folder, golden):
    stored = {}
    for own, shapes in golden["tensors"].items():
        packed, center, spread = own.startswith("u8,"), *map(float, own.removeprefix("u8,").split(","))
        for shape, names in shapes.items():
            for name in names:
                dims = [int(n) for n in shape.split(",")] if shape else []
                # Bytes from center to spread: the quants and scales of a quantized folder.
                middle, reach = ((center + spread) / 2, (spread - center) / 2) if packed else (center, spread)
                numbers = values(name, dims, middle, reach).copy()
                stored[name] = torch.from_numpy(np.rint(numbers).astype(np.uint8) if packed else numbers)
    save_file(stored, folder + "/model.safetensors", metadata={"format": "pt"})
    json.dump(golden["config"], open(folder + "/config.json", "w"))
    vocab = {"model": {"vocab": {str(i): i for i in range(VOCAB)}}, "added_tokens": []}
    json.dump(vocab, open(folder + "/tokenizer.json", "w"))


def logits(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        rows = model(torch.tensor([PROMPT])).logits[0].numpy()
    return [[[int(i), float("%.7g" % row[i])] for i in np.argsort(-row, kind="stable")[:3]] for row in rows]


def convert(folder, file):
    find = conversion.get_model_class

    def without_vocabulary(*args, **kwargs):
        found = find(*args, **kwargs)
        found.set_vocab = lambda self: None
        return found

    convert_hf_to_gguf.get_model_class = without_vocabulary
    conversion.llama.LlamaModel.set_vocab = lambda self: None
    sys.argv = ["convert", folder, "--outfile", file, "--outtype", "f32"]
    config = json.load(open(folder + "/config.json"))
    # transformers would add keys of experts to the configuration of a dense model.
    if config["model_type"] == "nemotron_h":
        conversion.base.ModelBase.load_hparams = staticmethod(lambda *args, **kwargs: dict(config))
    # Layers that predict tokens further ahead are not read.
    if config["model_type"].startswith(("qwen3_next", "qwen3_5")):
        sys.argv.append("--no-mtp")
    if os.fork() == 0:
        try:
            convert_hf_to_gguf.main()
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.wait()
    reader = gguf.GGUFReader(file)
    keys = {}
    for key, field in reader.fields.items():
        if key.startswith(("GGUF.", "tokenizer.")) or key.startswith("general.") and key != "general.architecture":
            continue
        kind = field.types[0].name.lower() if len(field.types) == 1 else f"array<{field.types[-1].name.lower()}>"
        keys[key] = [TYPES.get(kind, kind), field.contents()]
    tensors = {t.name: [",".join(str(int(n)) for n in reversed(t.shape)), hashlib.sha256(t.data.tobytes()).hexdigest()[:12]]
               for t in reader.tensors}
    return keys, tensors


data = json.load(open(DATA))
if sys.argv[2:3] == ["--add"]:
    chosen = [sys.argv[3]]
    data[chosen[0]] = new_folder(chosen[0], json.loads(sys.argv[4]))
else:
    chosen = sys.argv[2:] or list(data)
for model_type in chosen:
    golden = data[model_type]
    with tempfile.TemporaryDirectory() as folder:
        write_folder(folder, golden)
        if golden.get("logits", []) is not None:
            golden["logits"] = logits(folder)
        old = golden.get("gguf", {})
        golden["keys"], golden["gguf"] = convert(folder, folder + "/out.gguf")
        # Hashes that were removed stay so: the last bit of exp() and of sums depends on the library (ssm_a, rope_freqs, BitNet's
        # scales), and heads that are not rotated (nemotron_h) may have their rows in any order.
        for name, facts in golden["gguf"].items():
            if old.get(name, [0, 0])[1] is None:
                facts[1] = None
    print(model_type, len(golden["gguf"]), "tensors")
with open(DATA, "w") as out:
    rows = ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in sorted(data.items()))
    out.write("{\n" + rows + "\n}\n")
