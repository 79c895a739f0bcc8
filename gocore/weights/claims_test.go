package weights

import (
	"fmt"
	"reflect"
	"testing"

	"axlm/gocore/errs"
)

// claimLlama takes what the tiny model needs, as a family would.
func claimLlama(f *Folder) *Claims {
	c := f.Claims()
	c.Module("model.embed_tokens", false, 96, 64)
	for layer := range 2 {
		p := fmt.Sprintf("model.layers.%d.", layer)
		c.Tensor(p+"input_layernorm.weight", 64)
		c.Module(p+"self_attn.q_proj", false, 64, 64)
		c.Module(p+"self_attn.k_proj", false, 32, 64)
		c.Module(p+"self_attn.v_proj", false, 32, 64)
		c.Module(p+"self_attn.o_proj", false, 64, 64)
		c.Tensor(p+"post_attention_layernorm.weight", 64)
		c.Module(p+"mlp.gate_proj", false, 128, 64)
		c.Module(p+"mlp.up_proj", false, 128, 64)
		c.Module(p+"mlp.down_proj", false, 64, 128)
	}
	c.Tensor("model.norm.weight", -1)
	return c
}

func TestClaims(t *testing.T) {
	up := "model.layers.1.mlp.up_proj"
	q := tiny.with("quantization", config{"group_size": 32, "bits": 4})
	packed := func(tb table, edit ...string) table {
		out := tb.with(up+".weight", "")
		for name, spec := range packedTable(up, 128, 64, 4, 32, "affine") {
			out[name] = spec
		}
		return out.with(edit...)
	}
	cases := []struct {
		name string
		c    config
		tb   table
		want []string // nil: no error
	}{
		{"all there", tiny, tinyTensors(), nil},
		{"one quantised", q, packed(tinyTensors()), nil},
		{"one missing", tiny, tinyTensors().with("model.norm.weight", ""), []string{"tensor model.norm.weight is missing in "}},
		{"two missing", tiny, tinyTensors().with("model.norm.weight", "", up+".weight", ""), []string{"2 tensors are missing in ", up + ".weight, model.norm.weight"}},
		{"one extra", tiny, tinyTensors().with("lm_head.weight", "BF16 96 64"), []string{"1 tensor that this model does not use: lm_head.weight"}},
		{"many extra", tiny, tinyTensors().with("a", "F32 1", "b", "F32 1", "c", "F32 1", "d", "F32 1", "e", "F32 1"), []string{"5 tensors that this model does not use: a, b, c, d …"}},
		{"missing and extra", tiny, tinyTensors().with("model.norm.weight", "", "norm.weight", "BF16 64"),
			[]string{"tensor model.norm.weight is missing", "; and 1 tensor that this model does not use: norm.weight"}},
		{"wrong shape", tiny, tinyTensors().with(up+".weight", "BF16 128 65"), []string{up + ".weight: want shape [128, 64], got [128, 65]"}},
		{"wrong dtype", tiny, tinyTensors().with("model.norm.weight", "I32 64"), []string{"model.norm.weight: want a floating-point dtype, got I32"}},
		{"packed without quantization", tiny, packed(tinyTensors()), []string{up + ".weight is packed (U32), but config.json has no quantization"}},
		{"packed without scales", q, packed(tinyTensors(), up+".scales", ""), []string{up + ".weight is packed (U32), but " + up + ".scales is missing"}},
		{"packed, said plain", tiny.with("quantization", config{"group_size": 32, "bits": 4, up: false}), packed(tinyTensors()), []string{"config.json says that it is not quantised"}},
		{"packed biases missing", q, packed(tinyTensors(), up+".biases", ""), []string{"tensor " + up + ".biases is missing"}},
		{"packed weight misshapen", tiny.with("quantization", config{"group_size": 32, "bits": 4, up: config{"group_size": 32, "bits": 4}}),
			packed(tinyTensors(), up+".weight", "U32 128 9"), []string{up + ".weight: want shape [128, 8] (4 bits, group 32, affine), got [128, 9]"}},
		{"packed scales misshapen", tiny.with("quantization", config{"group_size": 32, "bits": 4, up: true}),
			packed(tinyTensors(), up+".scales", "BF16 128 3"), []string{up + ".scales: want shape [128, 2]"}},
		{"group wider than the rows", tiny.with("quantization", config{"group_size": 128, "bits": 4, up: true}),
			packed(tinyTensors()), []string{up + ".weight: width 64 is no multiple of the group size"}},
		{"bad entry", tiny.with("quantization", config{"group_size": 32, "bits": 4, up: config{"bits": 9}}), packed(tinyTensors()), []string{up + ".bits: want"}},
		{"wrong width", q, packed(tinyTensors(), up+".weight", "U32 128 16", up+".scales", "BF16 128 4", up+".biases", "BF16 128 4"), []string{up + ": no packing fits", "width 64"}},
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			err := claimLlama(open(t, x.c, x.tb)).Done()
			if x.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantErr(t, err, errs.KindValue, x.want...)
		})
	}
}

func TestModule(t *testing.T) {
	tb := packedTable("e", 6, 64, 4, 32, "affine").with(
		"e.weight", "U32 3 6 8", "e.scales", "F32 3 6 2", "e.biases", "F32 3 6 2", "e.bias", "F32 3 6",
		"m.weight", "U32 4 8", "m.scales", "U8 4 2", "p.weight", "F16 5 7", "p.bias", "F16 5", "spare", "F32 2")
	f := open(t, quantConfig(config{"group_size": 64, "bits": 8}), tb)
	c := f.Claims()
	e := c.Module("e", true, 3, 6, 64)
	if e.Quant == nil || *e.Quant != (Quant{32, 4, "affine"}) || !reflect.DeepEqual(e.Dims, []int{3, 6, 64}) {
		t.Errorf("experts: %+v", e)
	}
	if e.Weight.Name != "e.weight" || e.Scales.Name != "e.scales" || e.Biases.Name != "e.biases" || e.Bias.Name != "e.bias" {
		t.Errorf("experts: %+v", e)
	}
	m := c.Module("m", false, 4, 64)
	if m.Quant == nil || m.Quant.Mode != "mxfp4" || m.Biases.Name != "" || m.Bias.Name != "" {
		t.Errorf("mxfp4: %+v", m)
	}
	p := c.Module("p", true, 5, 7)
	if p.Quant != nil || p.Weight.DType != "F16" || p.Bias.Name != "p.bias" || p.Scales.Name != "" {
		t.Errorf("plain: %+v", p)
	}
	if _, ok := c.Optional("absent", 3); ok {
		t.Error("an absent tensor was found")
	}
	if x, ok := c.Optional("spare", 2); !ok || x.Name != "spare" {
		t.Errorf("optional: %+v", x)
	}
	if err := c.Done(); err != nil {
		t.Error(err)
	}
}

// Ignore and Err are for families that know a tensor and do not need it, and
// for leaving a long list of layers early.
func TestIgnoreAndErr(t *testing.T) {
	f := open(t, tiny, tinyTensors().with("model.inv_freq", "F32 4"))
	c := claimLlama(f)
	if c.Err() != nil {
		t.Error(c.Err())
	}
	c.Ignore("model.inv_freq")
	if err := c.Done(); err != nil {
		t.Error(err)
	}
	if c.Uses("model.inv_freq") || !c.Uses("model.norm.weight") {
		t.Error("an ignored tensor counts as used, or a used one as ignored")
	}
	c.Ignore("model.norm.weight")
	if !c.Uses("model.norm.weight") {
		t.Error("ignoring a tensor after use makes it unused")
	}
	c.Tensor("absent")
	wantErr(t, c.Err(), errs.KindValue, "tensor absent is missing")
}
