package weights

import (
	"fmt"
	"reflect"
	"testing"

	"axlm/gocore/errs"
)

// packedTable is a quantised matrix of [out, in] at path.
func packedTable(path string, out, in, bits, group int, mode string) table {
	scales := "BF16"
	if mode != "affine" {
		scales = "U8"
	}
	tb := table{
		path + ".weight": fmt.Sprintf("U32 %d %d", out, in*bits/32),
		path + ".scales": fmt.Sprintf("%s %d %d", scales, out, in/group),
	}
	if mode == "affine" {
		tb[path+".biases"] = tb[path+".scales"]
	}
	return tb
}

func quantConfig(entries config) config {
	return config{"model_type": "llama", "quantization": entries}
}

func TestPackings(t *testing.T) {
	type packing struct {
		bits, group int
		mode        string
	}
	all := []packing{{4, 32, "mxfp4"}, {8, 32, "mxfp8"}, {4, 16, "nvfp4"}}
	for _, bits := range affineBits {
		for _, group := range affineGroups {
			all = append(all, packing{bits, group, "affine"})
		}
	}
	for _, p := range all {
		name := fmt.Sprintf("%s-%d-%d", p.mode, p.bits, p.group)
		want := Quant{GroupSize: p.group, Bits: p.bits, Mode: p.mode}
		tb := packedTable("w", 6, 384, p.bits, p.group, p.mode)
		// The default, an entry for the path, and the shapes alone must agree.
		for how, c := range map[string]config{
			"top":   {"group_size": p.group, "bits": p.bits, "mode": p.mode},
			"entry": {"group_size": 64, "bits": 4, "w": config{"group_size": p.group, "bits": p.bits, "mode": p.mode}},
			"true":  {"group_size": p.group, "bits": p.bits, "mode": p.mode, "w": true},
		} {
			f := open(t, quantConfig(c), tb)
			if q, on, err := f.Quantization("w"); q != want || !on || err != nil {
				t.Errorf("%s by %s: %v %v %v", name, how, q, on, err)
			}
			if out, in, err := f.LinearShape("w"); out != 6 || in != 384 || err != nil {
				t.Errorf("%s by %s: shape %d, %d, %v", name, how, out, in, err)
			}
		}
		f := open(t, quantConfig(config{"group_size": 64, "bits": 4}), tb)
		if q, on, err := f.QuantizationOf("w", 384); q != want || !on || err != nil {
			t.Errorf("%s inferred: %v %v %v", name, q, on, err)
		}
	}
}

func TestQuantizationRules(t *testing.T) {
	tb := packedTable("w", 4, 256, 4, 64, "affine").with("plain.weight", "BF16 4 256", "expert.weight", "U32 3 4 32", "expert.scales", "F32 3 4 4", "expert.biases", "F32 3 4 4")
	top := config{"group_size": 64, "bits": 4}
	cases := []struct {
		name, path string
		c          config
		want       Quant
		on         bool
	}{
		{"no scales", "plain", top, Quant{}, false},
		{"unknown path", "nowhere", top, Quant{}, false},
		{"inferred", "w", config{"group_size": 32, "bits": 8}, Quant{32, 8, "affine"}, true}, // 4·64 = 8·32: the default decides
		{"inferred by group", "w", config{"group_size": 64, "bits": 2}, Quant{64, 4, "affine"}, true},
		{"false", "w", top.with("w", false), Quant{}, false},
		{"null", "w", top.with("w", nil), Quant{}, false},
		{"mode missing in an entry", "w", config{"group_size": 32, "bits": 4, "mode": "mxfp4", "w": config{"group_size": 64, "bits": 4}}, Quant{64, 4, "affine"}, true},
		{"entry without sizes", "w", top.with("w", config{"mode": "nvfp4"}), Quant{16, 4, "nvfp4"}, true},
		{"experts", "expert", top, Quant{64, 4, "affine"}, true},
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			q, on, err := open(t, quantConfig(x.c), tb).Quantization(x.path)
			if err != nil || q != x.want || on != x.on {
				t.Errorf("got %v %v %v, want %v %v", q, on, err, x.want, x.on)
			}
		})
	}
	t.Run("the width decides", func(t *testing.T) {
		f := open(t, quantConfig(config{"group_size": 32, "bits": 8}), tb)
		if q, _, err := f.QuantizationOf("w", 256); err != nil || q != (Quant{64, 4, "affine"}) {
			t.Errorf("%v %v", q, err)
		}
	})
	t.Run("no quantization", func(t *testing.T) {
		f := open(t, config{"model_type": "llama"}, tb)
		if _, on, err := f.Quantization("w"); on || err != nil {
			t.Errorf("%v %v", on, err)
		}
	})
	t.Run("logical shape", func(t *testing.T) {
		f := open(t, quantConfig(top), tb)
		for path, want := range map[string][]int{"expert": {3, 4, 256}, "plain": {4, 256}} {
			if got, err := f.LogicalShape(path); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v %v", path, got, err)
			}
		}
		_, _, err := f.LinearShape("expert")
		wantErr(t, err, errs.KindValue, "expert.weight: want a matrix, got shape [3, 4, 256]")
		_, _, err = f.LinearShape("nowhere")
		wantErr(t, err, errs.KindValue, "nowhere.weight is missing")
	})
}

func TestQuantizationConfigErrors(t *testing.T) {
	top := config{"group_size": 64, "bits": 4}
	cases := []struct {
		name, kind string
		c          config
		want       string
	}{
		{"no bits", errs.KindValue, config{"group_size": 64}, "quantization.bits is missing"},
		{"no group", errs.KindValue, config{"bits": 4}, "quantization.group_size is missing"},
		{"bits 7", errs.KindValue, config{"group_size": 64, "bits": 7}, "quantization.bits: want 1, 2, 3, 4, 5, 6 or 8, got 7"},
		{"group 48", errs.KindValue, config{"group_size": 48, "bits": 4}, "quantization.group_size: want 32, 64 or 128, got 48"},
		{"mode", errs.KindValue, top.with("mode", "int4"), `quantization.mode: want affine, mxfp4, mxfp8 or nvfp4, got "int4"`},
		{"mxfp4 bits", errs.KindValue, config{"group_size": 32, "bits": 8, "mode": "mxfp4"}, "quantization.bits: want 4 for mode mxfp4, got 8"},
		{"mxfp8 group", errs.KindValue, config{"group_size": 64, "bits": 8, "mode": "mxfp8"}, "quantization.group_size: want 32 for mode mxfp8, got 64"},
		{"nvfp4 group", errs.KindValue, config{"group_size": 32, "bits": 4, "mode": "nvfp4"}, "quantization.group_size: want 16 for mode nvfp4, got 32"},
		{"bits text", errs.KindValue, config{"group_size": 64, "bits": "4"}, `quantization.bits: want an integer, got "4"`},
		{"global scale", errs.KindNotImplemented, top.with("global_scale", true), "quantization.global_scale: not supported"},
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			_, err := Open(write(t, map[string]any{"config.json": quantConfig(x.c), "model.safetensors": tinyTensors()}))
			wantErr(t, err, x.kind, "config.json: "+x.want)
		})
	}
	entries := []struct {
		name, kind string
		entry      any
		want       string
	}{
		{"bits", errs.KindValue, config{"group_size": 64, "bits": 9}, "quantization.model.w.bits: want"},
		{"number", errs.KindValue, 4, "quantization.model.w: want an object or false, got 4"},
		{"scaled", errs.KindNotImplemented, config{"mode": "nvfp4", "global_scale": true}, "quantization.model.w.global_scale"},
	}
	for _, x := range entries {
		t.Run("entry "+x.name, func(t *testing.T) {
			f := open(t, quantConfig(top.with("model.w", x.entry)), tinyTensors())
			_, _, err := f.Quantization("model.w")
			wantErr(t, err, x.kind, x.want)
		})
	}
	_, err := Open(write(t, map[string]any{"config.json": config{"model_type": "llama", "quantization": 4}, "model.safetensors": tinyTensors()}))
	wantErr(t, err, errs.KindValue, "config.json: quantization: want an object, got 4")
	_, err = Open(write(t, map[string]any{"config.json": tiny.with("quantize_activations", true), "model.safetensors": tinyTensors()}))
	wantErr(t, err, errs.KindNotImplemented, "quantize_activations")
}

func TestMisshapen(t *testing.T) {
	good := packedTable("w", 4, 256, 4, 64, "affine")
	named := quantConfig(config{"group_size": 64, "bits": 4, "w": config{"group_size": 64, "bits": 4}})
	cases := []struct {
		name string
		c    config
		tb   table
		want string
	}{
		{"scales missing", named, good.with("w.scales", ""), "w.scales is missing (quantised: 4 bits, group 64, affine)"},
		{"biases missing", named, good.with("w.biases", ""), "w.biases is missing"},
		{"weight missing", named, good.with("w.weight", ""), "w.weight is missing"},
		{"scales shape", named, good.with("w.scales", "BF16 4 5"), "w.scales: want shape [4, 4] (4 bits, group 64, affine), got [4, 5]"},
		{"scales rows", named, good.with("w.scales", "BF16 5 4"), "w.scales: want shape [4, 4]"},
		{"biases shape", named, good.with("w.biases", "BF16 4 2"), "w.biases: want shape [4, 4]"},
		{"biases dtype", named, good.with("w.biases", "F32 4 4"), "w.biases: want dtype BF16"},
		{"weight dtype", named, good.with("w.weight", "I32 4 32"), "w.weight: want dtype U32"},
		{"scales dtype", named, good.with("w.scales", "U8 4 4"), "w.scales: want dtype BF16"},
		{"rows no groups", named, good.with("w.weight", "U32 4 33"), "w.weight: rows of 33 words hold no whole groups"},
		{"one axis", named, good.with("w.weight", "U32 32"), "w.weight: want at least two axes, got shape [32]"},
		{"biases beside mxfp4", quantConfig(config{"group_size": 32, "bits": 4, "mode": "mxfp4"}),
			packedTable("w", 4, 256, 4, 32, "mxfp4").with("w.biases", "BF16 4 8"), "w.biases: mode mxfp4 has no biases"},
		{"no packing fits", quantConfig(config{"group_size": 64, "bits": 4}), good.with("w.scales", "BF16 4 7"), "w: no packing fits weight [4, 32], scales BF16 [4, 7]"},
		{"no fp packing fits", quantConfig(config{"group_size": 64, "bits": 4}), good.with("w.scales", "U8 4 5"), "w: no packing fits"},
		{"empty scales", quantConfig(config{"group_size": 64, "bits": 4}), good.with("w.scales", "BF16 4 0"), "w: no packing fits"},
		{"several fit", quantConfig(config{"group_size": 128, "bits": 6}), table{"w.weight": "U32 2 24", "w.scales": "BF16 2 4", "w.biases": "BF16 2 4"}, "fit several packings"},
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			_, err := open(t, x.c, x.tb).LogicalShape("w")
			wantErr(t, err, errs.KindValue, x.want)
		})
	}
	f := open(t, quantConfig(config{"group_size": 64, "bits": 4}), good.with("w.weight", ""))
	_, _, err := f.Quantization("w")
	wantErr(t, err, errs.KindValue, "w.scales is there, but w.weight is missing")
	f = open(t, quantConfig(config{"group_size": 64, "bits": 4}), good)
	_, _, err = f.QuantizationOf("w", 320)
	wantErr(t, err, errs.KindValue, "w: no packing fits", "width 320")
}

func TestForeignQuantization(t *testing.T) {
	cases := []struct {
		name string
		c    config
		want *Quant
		kind string
		text string
	}{
		{"none", config{}, nil, "", ""},
		{"null", config{"quantization_config": nil}, nil, "", ""},
		{"mxfp4", config{"quantization_config": config{"quant_method": "mxfp4"}}, &Quant{32, 4, "mxfp4"}, "", ""},
		{"mxfp8 in text_config", config{"text_config": config{"quantization_config": config{"quant_method": "mxfp8"}}}, &Quant{32, 8, "mxfp8"}, "", ""},
		{"fp8 blocks", config{"quantization_config": config{"quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": []int{32, 32}}}, &Quant{32, 8, "mxfp8"}, "", ""},
		{"fp8", config{"quantization_config": config{"quant_method": "fp8"}}, nil, errs.KindNotImplemented, "fp8 weights"},
		{"gptq", config{"quantization_config": config{"quant_method": "gptq"}}, nil, errs.KindNotImplemented, "gptq weights"},
		{"no method", config{"quantization_config": config{"bits": 4}}, nil, errs.KindValue, "quantization_config.quant_method is missing"},
		{"nvfp4", config{"quantization_config": config{"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}}, &Quant{16, 4, "nvfp4"}, "", ""},
		{"mxfp4 packed", config{"quantization_config": config{"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}}, &Quant{32, 4, "mxfp4"}, "", ""},
		{"packed", config{"quantization_config": config{"quant_method": "compressed-tensors", "format": "pack-quantized"}}, &Quant{32, 4, "affine"}, "", ""},
		{"fp8 packed", config{"quantization_config": config{"quant_method": "compressed-tensors", "format": "float-quantized"}}, nil, errs.KindValue, "quantization_config.format"},
		{"modelopt", config{"quantization_config": config{"quant_method": "modelopt", "quant_algo": "NVFP4"}}, &Quant{16, 4, "nvfp4"}, "", ""},
		{"modelopt fp8", config{"quantization_config": config{"quant_method": "modelopt", "quantization": config{"quant_algo": "FP8"}}}, nil, errs.KindValue, "quant_algo: want NVFP4"},
		{"ours first", config{"quantization": config{"group_size": 32, "bits": 8}, "quantization_config": config{"quant_method": "gptq"}}, &Quant{32, 8, "affine"}, "", ""},
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			f, err := Open(write(t, map[string]any{"config.json": x.c.with("model_type", "llama"), "model.safetensors": tinyTensors()}))
			if x.kind != "" {
				wantErr(t, err, x.kind, x.text)
			} else if err != nil || !reflect.DeepEqual(f.quant.top, x.want) {
				t.Errorf("%v", err)
			}
		})
	}
	f, err := Open(write(t, map[string]any{"config.json": tiny, "model.safetensors": tinyTensors(),
		modelOptFile: `{"quant_method":"modelopt","quantization":{"quant_algo":"NVFP4"}}`}))
	if err != nil || *f.quant.top != (Quant{16, 4, "nvfp4"}) {
		t.Errorf("ModelOpt's own file: %v", err)
	}
}
