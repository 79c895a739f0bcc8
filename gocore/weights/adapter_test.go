package weights

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"axlm/gocore/errs"
)

// adapterFolder writes an adapter; without tensors its file is left out.
func adapterFolder(t *testing.T, config string, tensors table) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, adapterConfigFile), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if tensors != nil {
		if err := os.WriteFile(filepath.Join(dir, adapterWeightsFile), tensors.file(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func square(rank int) (a, b, m []int) { return []int{8, rank}, []int{rank, 8}, []int{8} }

const layer3 = "model.layers.3.self_attn.q_proj"

func TestWhichLayersAnAdapterCovers(t *testing.T) {
	tensors := table{layer3 + ".lora_a": "F32 8 2", layer3 + ".lora_b": "F32 2 8"}
	for config, covered := range map[string]bool{
		`{"num_layers": -1, "lora_parameters": {"rank": 2, "dropout": 0, "scale": 1}}`:                                 true,
		`{"num_layers": 0, "lora_parameters": {"rank": 2, "dropout": 0, "scale": 1, "keys": null}}`:                    true,
		`{"num_layers": 1, "lora_parameters": {"rank": 2, "dropout": 0, "scale": 1}}`:                                  true,
		`{"num_layers": 9, "lora_parameters": {"rank": 2, "dropout": 0, "scale": 1, "keys": ["self_attn.q_proj"]}}`:    true,
		`{"num_layers": 4, "lora_parameters": {"rank": 2, "dropout": 0, "scale": 1, "keys": ["mlp.up_proj"]}}`:         false,
		`{"num_layers": 4, "lora_parameters": {"rank": 2, "dropout": 0, "scale": 1, "keys": []}}`:                      false,
		`{"num_layers": 1, "lora_parameters": {"rank": 2, "dropout": 0, "scale": 1, "keys": ["` + layer3 + `", "x"]}}`: true,
	} {
		a, err := OpenAdapter(adapterFolder(t, config, tensors))
		if err != nil {
			t.Fatal(err)
		}
		a.ForLayers(4)
		found, ok := a.LowRank(layer3, square)
		if ok != covered || ok && (found.A.Name == "" || found.B.Name == "" || found.Magnitude.Name != "") {
			t.Errorf("%s: covered %v, %+v", config, ok, found)
		}
		if err := a.Done(); (err == nil) != covered {
			t.Errorf("%s: %v", config, err)
		}
	}
	a, err := OpenAdapter(adapterFolder(t, `{"num_layers": 2, "lora_parameters": {"rank": 2, "dropout": 0, "scale": 1}}`, tensors))
	if err != nil {
		t.Fatal(err)
	}
	a.ForLayers(6)
	if _, ok := a.LowRank(layer3, square); ok {
		t.Error("layer 3 is among the last 2 of 6")
	}
}

func TestAdaptersThatDoNotFit(t *testing.T) {
	const lora = `{"num_layers": 4, "lora_parameters": {"rank": 2, "dropout": 0, "scale": 1.5}}`
	dora := strings.Replace(lora, "{", `{"fine_tune_type": "dora", `, 1)
	whole := table{layer3 + ".lora_a": "F32 8 2", layer3 + ".lora_b": "F32 2 8", layer3 + ".m": "F32 8"}
	for name, c := range map[string]struct {
		config  string
		tensors table
		words   []string // of the error; none for no error
	}{
		"dora":                {dora, whole, nil},
		"a magnitude":         {lora, whole, []string{layer3 + ".m", "no such"}},
		"none":                {dora, whole.with(layer3+".m", ""), []string{layer3 + ".m", "missing"}},
		"half":                {dora, whole.with(layer3+".lora_b", ""), []string{layer3 + ".lora_b", "missing"}},
		"another shape":       {dora, whole.with(layer3+".lora_a", "F32 9 2"), []string{layer3 + ".lora_a", "[8, 2]", "[9, 2]"}},
		"integers":            {dora, whole.with(layer3+".lora_a", "I32 8 2"), []string{layer3 + ".lora_a", "I32"}},
		"a layer of no model": {dora, whole.with("model.layers.7.x.lora_a", "F32 8 2"), []string{"model.layers.7.x.lora_a"}},
	} {
		a, err := OpenAdapter(adapterFolder(t, c.config, c.tensors))
		if err != nil {
			t.Fatal(err)
		}
		a.ForLayers(4)
		_, ok := a.LowRank(layer3, square)
		err = a.Done()
		if c.words == nil {
			if !ok || err != nil {
				t.Errorf("%s: found %v, %v", name, ok, err)
			}
			continue
		}
		if errs.Kind(err) != errs.KindValue {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, word := range c.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v does not name %s", name, err, word)
			}
		}
	}
}

func TestAdaptersThatReplace(t *testing.T) {
	tensors := table{"model.norm.weight": "F32 8", "lm_head.weight": "U32 8 2"}
	base := map[string]Tensor{
		"model.norm.weight": {Name: "model.norm.weight", DType: "BF16", Shape: []int{8}},
		"lm_head.weight":    {Name: "lm_head.weight", DType: "U32", Shape: []int{8, 2}},
	}
	open := func() *Adapter {
		a, err := OpenAdapter(adapterFolder(t, `{"fine_tune_type": "full", "num_layers": 4}`, tensors))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := open()
	for name, b := range base {
		if got, ok := a.Replacement(b); !ok || got.Name != name {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
	if err := a.Done(); err != nil {
		t.Error(err)
	}
	if _, ok := a.LowRank("lm_head", square); ok || a.Has("lm_head") {
		t.Error("it has a low-rank part")
	}
	for what, wrong := range map[string]Tensor{
		"[9]":  {Name: "model.norm.weight", DType: "BF16", Shape: []int{9}},
		"BF16": {Name: "lm_head.weight", DType: "BF16", Shape: []int{8, 2}},
	} {
		a := open()
		a.Replacement(wrong)
		if err := a.Done(); err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), wrong.Name) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestAdapterConfigurations(t *testing.T) {
	none := table{}
	for name, c := range map[string]struct {
		config string
		kind   string
		word   string
	}{
		"no scale":   {`{"num_layers": 1, "lora_parameters": {"rank": 2, "dropout": 0}}`, errs.KindKey, "lora_parameters.scale"},
		"alpha":      {`{"num_layers": 1, "lora_parameters": {"rank": 2, "dropout": 0, "alpha": 16}}`, errs.KindKey, "alpha"},
		"no rank":    {`{"num_layers": 1, "lora_parameters": {"scale": 2}}`, errs.KindKey, "lora_parameters.rank"},
		"no dropout": {`{"num_layers": 1, "lora_parameters": {"rank": 2, "scale": 1}}`, errs.KindKey, "lora_parameters.dropout"},
		"no layers":  {`{"lora_parameters": {"rank": 2, "dropout": 0, "scale": 1}}`, errs.KindValue, "num_layers"},
		"nothing":    {`{"num_layers": 1}`, errs.KindValue, "lora_parameters"},
		"rank 0":     {`{"num_layers": 1, "lora_parameters": {"rank": 0, "dropout": 0, "scale": 1}}`, errs.KindValue, "rank"},
		"keys":       {`{"num_layers": 1, "lora_parameters": {"rank": 1, "dropout": 0, "scale": 1, "keys": 3}}`, errs.KindValue, "keys"},
		"other type": {`{"fine_tune_type": "ia3"}`, errs.KindValue, "ia3"},
		"no object":  {`[]`, errs.KindValue, adapterConfigFile},
		"broken":     {`{"num_layers"`, errs.KindValue, adapterConfigFile},
	} {
		_, err := OpenAdapter(adapterFolder(t, c.config, none))
		if errs.Kind(err) != c.kind || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %s, %v", name, errs.Kind(err), err)
		}
	}
	for _, dir := range []string{filepath.Join(t.TempDir(), "absent"), t.TempDir(), adapterFolder(t, `{"fine_tune_type": "full"}`, nil)} {
		if _, err := OpenAdapter(dir); errs.Kind(err) != errs.KindNotFound {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
