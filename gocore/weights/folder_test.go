package weights

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"axlm/gocore/errs"
)

func TestOpen(t *testing.T) {
	f := open(t, tiny, tinyTensors())
	if f.ModelType != "llama" || !slices.Equal(f.Files, []string{"model.safetensors"}) || len(f.Tensors) != 20 {
		t.Errorf("type %q, files %v, %d tensors", f.ModelType, f.Files, len(f.Tensors))
	}
	if x := f.Tensors["model.norm.weight"]; x.DType != "BF16" || !reflect.DeepEqual(x.Shape, []int{64}) || x.File != "model.safetensors" || x.Length != 128 {
		t.Errorf("%+v", x)
	}
	if n := f.Bytes(); n != 2*(96*64+64+2*(2*64*64+2*32*64+3*128*64+2*64)) {
		t.Errorf("%d bytes", n)
	}
}

func TestOpenErrors(t *testing.T) {
	good := tinyTensors()
	cases := []struct {
		name, kind string
		files      map[string]any
		want       []string
	}{
		{"no config", errs.KindNotFound, map[string]any{"model.safetensors": good}, []string{"config.json does not exist"}},
		{"no weights", errs.KindNotFound, map[string]any{"config.json": tiny, "other.safetensors": good}, []string{"no model*.safetensors in"}},
		{"broken config", errs.KindValue, map[string]any{"config.json": "{\"a\":\n ]", "model.safetensors": good}, []string{"config.json: not valid JSON at line 2, column 2"}},
		{"config a list", errs.KindValue, map[string]any{"config.json": "[]", "model.safetensors": good}, []string{"config.json: want a JSON object"}},
		{"no model_type", errs.KindValue, map[string]any{"config.json": "{}", "model.safetensors": good}, []string{"config.json: model_type is missing"}},
		{"model_type a number", errs.KindValue, map[string]any{"config.json": tiny.with("model_type", 3), "model.safetensors": good}, []string{"model_type: want a string, got 3"}},
		{"custom code", errs.KindNotImplemented, map[string]any{"config.json": tiny.with("model_file", "m.py"), "model.safetensors": good}, []string{"model_file"}},
		{"huge layers", errs.KindValue, map[string]any{"config.json": tiny.with("num_hidden_layers", 1_000_000_000), "model.safetensors": good},
			[]string{"config.json: num_hidden_layers: 1000000000 layers, but the folder holds only 20 tensors"}},
		{"layers beyond int", errs.KindValue, map[string]any{"config.json": tiny.with("num_hidden_layers", 1e30), "model.safetensors": good},
			[]string{"num_hidden_layers: want a positive integer, got 1e+30"}},
		{"negative layers", errs.KindValue, map[string]any{"config.json": tiny.with("num_hidden_layers", -2), "model.safetensors": good},
			[]string{"num_hidden_layers: want a positive integer, got -2"}},
		{"huge nested layers", errs.KindValue, map[string]any{"config.json": tiny.with("text_config", config{"num_hidden_layers": 5000}), "model.safetensors": good},
			[]string{"config.json: text_config.num_hidden_layers: 5000 layers"}},
		{"text_config a string", errs.KindValue, map[string]any{"config.json": tiny.with("text_config", "x"), "model.safetensors": good},
			[]string{`text_config: want an object, got "x"`}},
		{"empty file", errs.KindValue, map[string]any{"config.json": tiny, "model.safetensors": ""}, []string{"model.safetensors is empty"}},
		{"index without files", errs.KindNotFound, map[string]any{"config.json": tiny, "part.safetensors": good,
			indexFile: `{"weight_map":{"model.norm.weight":"part.safetensors"}}`}, []string{"no model*.safetensors"}},
		{"shard truncated", errs.KindValue, map[string]any{"config.json": tiny, "model-1.safetensors": good, "model-2.safetensors": table{"b": "F32 4"}.file()[:70]},
			[]string{"model-2.safetensors is truncated"}},
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			_, err := Open(write(t, x.files))
			wantErr(t, err, x.kind, x.want...)
		})
	}
}

func TestOpenNoFolder(t *testing.T) {
	dir := write(t, map[string]any{"file": "x"})
	_, err := Open(filepath.Join(dir, "absent"))
	wantErr(t, err, errs.KindNotFound, filepath.Join(dir, "absent"))
	_, err = Open(filepath.Join(dir, "file"))
	wantErr(t, err, errs.KindOS, "is a file, not a model folder")
}

// split writes the tiny model as two shards.
func split(t *testing.T) (files map[string]any, index string) {
	t.Helper()
	first, second := table{}, table{}
	var entries []string
	for name, spec := range tinyTensors() {
		shard, file := first, "model-00001-of-00002.safetensors"
		if strings.Contains(name, "layers.1.") {
			shard, file = second, "model-00002-of-00002.safetensors"
		}
		shard[name] = spec
		entries = append(entries, `"`+name+`":"`+file+`"`)
	}
	return map[string]any{"config.json": tiny, "model-00001-of-00002.safetensors": first, "model-00002-of-00002.safetensors": second},
		`{"metadata":{"total_size":1},"weight_map":{` + strings.Join(entries, ",") + `}}`
}

func TestShards(t *testing.T) {
	files, index := split(t)
	dir := write(t, files)
	for _, withIndex := range []bool{false, true} {
		if withIndex {
			put(t, dir, indexFile, index)
		}
		f, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Tensors) != 20 || len(f.Files) != 2 || f.Tensors["model.layers.1.mlp.up_proj.weight"].File != "model-00002-of-00002.safetensors" {
			t.Errorf("index %v: %d tensors in %v", withIndex, len(f.Tensors), f.Files)
		}
	}
	// Without the index a lost shard shows in what is missing.
	for _, name := range []string{indexFile, "model-00002-of-00002.safetensors"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, claimLlama(f).Done(), errs.KindValue, "9 tensors are missing", "model.layers.1.input_layernorm.weight",
		"; of its files, these are not there: model-00002-of-00002.safetensors")
}

// An index is no part of what is loaded: left over, broken or wrong, files that hold every tensor are complete.
func TestIndexDecidesNothing(t *testing.T) {
	for name, index := range map[string]string{
		"absent shards":    `{"weight_map":{"model.norm.weight":"model-00001-of-00003.safetensors","lost":"model-00002-of-00003.safetensors"}}`,
		"unheld tensors":   `{"weight_map":{"model.norm.weight":"model.safetensors","lost":"model.safetensors"}}`,
		"no JSON":          "{",
		"empty":            "",
		"no map":           "{}",
		"a list":           `{"weight_map":[]}`,
		"a number":         `{"weight_map":{"model.norm.weight":1}}`,
		"leads elsewhere":  `{"weight_map":{"model.norm.weight":"../x.safetensors"}}`,
		"names other file": `{"weight_map":{"model.norm.weight":"part.safetensors"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Open(write(t, map[string]any{"config.json": tiny, "model.safetensors": tinyTensors(),
				"part.safetensors": table{"model.norm.weight": "F32 64"}, indexFile: index}))
			if err != nil {
				t.Fatal(err)
			}
			if err := claimLlama(f).Done(); err != nil || !slices.Equal(f.Files, []string{"model.safetensors"}) {
				t.Errorf("%v, files %v", err, f.Files)
			}
		})
	}
}

// Where a tensor is missing, an index of these files tells where it should be; a left-over one does not mislead.
func TestIndexExplains(t *testing.T) {
	lacking := tinyTensors().with("model.norm.weight", "")
	where := func(file string) string {
		return `{"weight_map":{"model.embed_tokens.weight":"model-00001-of-00002.safetensors","model.norm.weight":"` + file + `"}}`
	}
	first, second := "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	for _, x := range []struct {
		name, kind, index, file string
		want, not               string
	}{
		{"a file is gone", errs.KindNotFound, where(second), first, "these are not there: " + second, "places"},
		{"a file was exchanged", errs.KindValue, where(first), first, "model.norm.weight; the first should be in " + first, ""},
		{"left over", errs.KindValue, where(second), "model.safetensors", "tensor model.norm.weight is missing in", "of-00002"},
		{"broken", errs.KindValue, "{", "model.safetensors", "tensor model.norm.weight is missing in", "index"},
	} {
		t.Run(x.name, func(t *testing.T) {
			f, err := Open(write(t, map[string]any{"config.json": tiny, x.file: lacking, indexFile: x.index}))
			if err != nil {
				t.Fatal(err)
			}
			err = claimLlama(f).Done()
			wantErr(t, err, x.kind, "model.norm.weight", x.want)
			if x.not != "" && strings.Contains(err.Error(), x.not) {
				t.Errorf("%v: says %q", err, x.not)
			}
		})
	}
}

// Of two tensors with one name the last file's counts, in the order in which the file system lists them; whoever reads
// Files in order finds the same, and no index changes it.
func TestDuplicates(t *testing.T) {
	dir := write(t, map[string]any{"config.json": tiny})
	names := []string{"model-z.safetensors", "model.safetensors", "model-a.safetensors", "model-00002-of-00002.safetensors"}
	for _, name := range names {
		put(t, dir, name, tinyTensors())
	}
	list, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	listed, err := list.Readdirnames(-1)
	if err != nil {
		t.Fatal(err)
	}
	listed = slices.DeleteFunc(listed, func(name string) bool { return !strings.HasPrefix(name, "model") })
	for _, placed := range append([]string{""}, names...) {
		if placed != "" {
			put(t, dir, indexFile, `{"weight_map":{"model.norm.weight":"`+placed+`"}}`)
		}
		f, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(f.Files, listed) {
			t.Errorf("read in the order %v, listed %v", f.Files, listed)
		}
		for name, x := range f.Tensors {
			if last := listed[len(listed)-1]; x.File != last {
				t.Fatalf("index %q: %s of %s, want %s", placed, name, x.File, last)
			}
		}
	}
}

func TestOverrides(t *testing.T) {
	dir := write(t, map[string]any{"config.json": tiny, "model.safetensors": tinyTensors()})
	f, err := OpenWith(dir, map[string]any{"vocab_size": 5.0, "head_dim": nil})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := f.Config.Int("vocab_size"); v != 5 || err != nil {
		t.Errorf("%d %v", v, err)
	}
	_, err = OpenWith(dir, map[string]any{"num_hidden_layers": 1e9})
	wantErr(t, err, errs.KindValue, "num_hidden_layers")
}

func TestRename(t *testing.T) {
	f := open(t, tiny, tinyTensors().with("vision_tower.x", "F32 1"))
	err := f.Rename(func(name string) (string, bool) {
		return "language_model." + name, !strings.HasPrefix(name, "vision_tower")
	})
	if err != nil || len(f.Tensors) != 20 || f.Has("model.norm.weight") {
		t.Fatalf("%v, %d tensors", err, len(f.Tensors))
	}
	x := f.Tensors["language_model.model.norm.weight"]
	if x.Name != "language_model.model.norm.weight" || x.Source != "model.norm.weight" {
		t.Errorf("%+v", x)
	}
	err = f.Rename(func(name string) (string, bool) { return "same", true })
	wantErr(t, err, errs.KindValue, "both stand for same", "model.embed_tokens.weight")
	if len(f.Tensors) != 20 {
		t.Error("a failed Rename changed the table")
	}
}

func TestEndTokens(t *testing.T) {
	cases := []struct {
		name       string
		config     any
		generation string
		want       []int
		err        string
	}{
		{"int", 7, "", []int{7}, ""},
		{"zero", 0, "", []int{0}, ""},
		{"list", []int{3, 1, 3}, "", []int{3, 1}, ""},
		{"none", nil, "", nil, ""},
		{"generation wins", 1, `{"eos_token_id":[1,106]}`, []int{1, 106}, ""},
		{"generation int", []int{4}, `{"eos_token_id":9}`, []int{9}, ""},
		{"generation zero is false", 4, `{"eos_token_id":0}`, []int{4}, ""},
		{"generation empty", 4, `{"eos_token_id":[]}`, []int{4}, ""},
		{"generation null", 4, `{"eos_token_id":null}`, []int{4}, ""},
		{"generation silent", 4, `{"do_sample":false}`, []int{4}, ""},
		{"generation broken", 4, `{"eos_token_id":`, []int{4}, ""},
		{"text", "x", "", nil, `eos_token_id: want a token id or a list of them, got "x"`},
		{"list of text", []string{"x"}, "", nil, "eos_token_id: want a token id"},
		{"negative", []int{1, -1}, "", nil, "eos_token_id: token id -1 is negative"},
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			files := map[string]any{"config.json": tiny.with("eos_token_id", x.config), "model.safetensors": tinyTensors()}
			if x.generation != "" {
				files[generationFile] = x.generation
			}
			f, err := Open(write(t, files))
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.EndTokens()
			if x.err != "" {
				wantErr(t, err, errs.KindValue, x.err)
				return
			}
			if err != nil || !slices.Equal(got, x.want) {
				t.Errorf("got %v, %v; want %v", got, err, x.want)
			}
		})
	}
}
