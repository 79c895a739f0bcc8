package weights

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"axlm/gocore/errs"
)

// described writes the tiny model in two shards with one quantised matrix, and
// its manifest.
func described(t *testing.T) (dir string, m *Manifest) {
	t.Helper()
	tb := tinyTensors().with("model.norm.weight", "", "model.layers.0.mlp.up_proj.weight", "")
	for name, spec := range packedTable("model.layers.0.mlp.up_proj", 128, 64, 6, 32, "affine") {
		tb[name] = spec
	}
	dir = write(t, map[string]any{
		"config.json":          tiny.with("quantization", config{"group_size": 64, "bits": 4, "model.layers.0.mlp.up_proj": config{"group_size": 32, "bits": 6}}),
		"model-1.safetensors":  tb,
		"model-2.safetensors":  table{"model.norm.weight": "BF16 64"},
		generationFile:         `{"eos_token_id": [1, 106]}`,
		"unrelated.txt":        "x",
		"tokenizer.json":       "{}",
		"consolidated.weights": "x",
	})
	m, err := BuildManifest(reopen(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func reopen(t *testing.T, dir string) *Folder {
	t.Helper()
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (m *Manifest) find(t *testing.T, name string) *ManifestTensor {
	t.Helper()
	for i := range m.Tensors {
		if m.Tensors[i].Name == name {
			return &m.Tensors[i]
		}
	}
	t.Fatalf("the manifest has no %s", name)
	return nil
}

func TestManifestContent(t *testing.T) {
	dir, m := described(t)
	f := reopen(t, dir)
	if m.Version != 1 || m.Family != "llama" || m.Dimensions.Hidden != 64 || !m.TiedEmbeddings || !reflect.DeepEqual(m.EndTokens, []int{1, 106}) {
		t.Errorf("%+v", m.Description)
	}
	if len(m.Files) != 2 || m.Files[0].Name != "model-1.safetensors" || len(m.Tensors) != 22 {
		t.Errorf("files %v, %d tensors", m.Files, len(m.Tensors))
	}
	x := f.Tensors["model.layers.0.mlp.up_proj.scales"]
	want := ManifestTensor{Name: x.Name, Role: "mlp_up", Part: "scales", Layer: 0, DType: "BF16", Shape: []int{128, 2},
		Quantization: &Quant{32, 6, "affine"}, File: "model-1.safetensors", Offset: x.Offset, Length: 512}
	if got := m.find(t, x.Name); !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, want %+v", *got, want)
	}
	if got := m.find(t, "model.norm.weight"); got.Role != "final_norm" || got.Layer != NoLayer || got.Quantization != nil || got.File != "model-2.safetensors" {
		t.Errorf("%+v", got)
	}
	for i := 1; i < len(m.Tensors); i++ {
		if a, b := m.Tensors[i-1], m.Tensors[i]; a.File > b.File || a.File == b.File && a.Offset > b.Offset {
			t.Errorf("%s comes before %s", a.Name, b.Name)
		}
	}
}

func TestManifestRoundTrip(t *testing.T) {
	dir, m := described(t)
	back, err := ReadManifest(dir)
	if err != nil || !reflect.DeepEqual(back, m) {
		t.Errorf("%v: %+v", err, back)
	}
	f := reopen(t, dir)
	if err := f.Rename(func(name string) (string, bool) { return "x." + name, !strings.Contains(name, "layers.1") }); err != nil {
		t.Fatal(err)
	}
	if err := Check(back, f); err != nil {
		t.Errorf("after Rename: %v", err)
	}
	if got, note, err := Current(f); err != nil || note != "" || !reflect.DeepEqual(got, m) {
		t.Errorf("Current: %q %v", note, err)
	}
	info, err := os.Stat(filepath.Join(dir, ManifestFile))
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 8 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

// Copying a folder changes its files' times and nothing that matters.
func TestManifestSurvivesCopy(t *testing.T) {
	dir, m := described(t)
	other := t.TempDir()
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := Check(m, reopen(t, other)); err != nil {
		t.Error(err)
	}
}

func TestManifestStale(t *testing.T) {
	cases := map[string]struct {
		change func(t *testing.T, dir string)
		want   string
	}{
		"config":     {func(t *testing.T, dir string) { put(t, dir, "config.json", tiny.with("rms_norm_eps", 1e-6)) }, "config.json or generation_config.json has changed"},
		"generation": {func(t *testing.T, dir string) { put(t, dir, generationFile, `{"eos_token_id": 1}`) }, "config.json or generation_config.json has changed"},
		"generation gone": {func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, generationFile)); err != nil {
				t.Fatal(err)
			}
		}, "config.json or generation_config.json has changed"},
		"size": {func(t *testing.T, dir string) {
			put(t, dir, "model-2.safetensors", table{"model.norm.weight": "F32 64"})
		}, "model-2.safetensors has"},
		"header": {func(t *testing.T, dir string) {
			put(t, dir, "model-2.safetensors", table{"model.norm.weighs": "BF16 64"})
		}, "the header of model-2.safetensors has changed"},
		"new file": {func(t *testing.T, dir string) { put(t, dir, "model-3.safetensors", table{"a": "BF16 64"}) }, "model-3.safetensors is new"},
		"gone": {func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "model-2.safetensors")); err != nil {
				t.Fatal(err)
			}
		}, "model-2.safetensors is gone"},
		"version": {func(t *testing.T, dir string) { put(t, dir, ManifestFile, `{"schema_version": 2, "new": 1}`) }, "schema_version is 2"},
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			dir, old := described(t)
			x.change(t, dir)
			f := reopen(t, dir)
			if name == "version" {
				old = &Manifest{Version: 2}
			}
			err := Check(old, f)
			wantErr(t, err, errs.KindValue, ManifestFile+" is out of date", x.want)
			if !IsStale(err) {
				t.Errorf("%v is not stale", err)
			}
			m, note, err := Current(f)
			if err != nil || !strings.Contains(note, x.want) {
				t.Fatalf("Current: %q, %v", note, err)
			}
			if err := Check(m, f); err != nil {
				t.Errorf("made anew: %v", err)
			}
		})
	}
}

func TestManifestLies(t *testing.T) {
	const up = "model.layers.0.mlp.up_proj.weight"
	cases := []struct {
		name string
		lie  func(m *Manifest, up *ManifestTensor)
		want string
	}{
		{"parent", func(m *Manifest, up *ManifestTensor) { up.File = "../model-1.safetensors" }, `tensor ` + up + `: file "../model-1.safetensors" is not a name within the folder`},
		{"absolute", func(m *Manifest, up *ManifestTensor) { up.File = "/etc/passwd" }, `file "/etc/passwd" is not a name within`},
		{"below", func(m *Manifest, up *ManifestTensor) { up.File = "sub/x" }, `file "sub/x" is not a name within`},
		{"backslash", func(m *Manifest, up *ManifestTensor) { up.File = `..\x` }, "is not a name within"},
		{"dots", func(m *Manifest, up *ManifestTensor) { m.Files[0].Name = ".." }, `file ".." is not a name within`},
		{"no name", func(m *Manifest, up *ManifestTensor) { up.File = "" }, `file "" is not a name within`},
		{"other file", func(m *Manifest, up *ManifestTensor) { up.File = "tokenizer.json" }, `file "tokenizer.json" is not among the files`},
		{"file twice", func(m *Manifest, up *ManifestTensor) { m.Files[1] = m.Files[0] }, `file "model-1.safetensors" is listed twice`},
		{"offset beyond", func(m *Manifest, up *ManifestTensor) { up.Offset = 1 << 40 }, "tensor " + up + ": offset 1099511627776 and length 6144 lie outside model-1.safetensors"},
		{"length beyond", func(m *Manifest, up *ManifestTensor) { up.Length = 1<<63 - 1 }, "lie outside model-1.safetensors"},
		{"negative offset", func(m *Manifest, up *ManifestTensor) { up.Offset = -1 }, "offset -1 and length"},
		{"negative length", func(m *Manifest, up *ManifestTensor) { up.Length = -1 }, "length -1 lie outside"},
		{"moved", func(m *Manifest, up *ManifestTensor) { up.Offset += 4 }, "tensor " + up + ": offset is"},
		{"shape", func(m *Manifest, up *ManifestTensor) { up.Shape = []int{64, 24} }, "tensor " + up + ": shape[0] is 128, not 64"},
		{"axes", func(m *Manifest, up *ManifestTensor) { up.Shape = []int{128} }, "tensor " + up + ": shape is [128,12], not [128]"},
		{"dtype", func(m *Manifest, up *ManifestTensor) { up.DType = "F32" }, "tensor " + up + `: dtype is "U32", not "F32"`},
		{"role", func(m *Manifest, up *ManifestTensor) { up.Role = "mlp_gate" }, `role is "mlp_up", not "mlp_gate"`},
		{"layer", func(m *Manifest, up *ManifestTensor) { up.Layer = 1 }, "layer is 0, not 1"},
		{"quantisation", func(m *Manifest, up *ManifestTensor) { up.Quantization = &Quant{32, 4, "affine"} }, "quantization.bits is 6, not 4"},
		{"no quantisation", func(m *Manifest, up *ManifestTensor) { up.Quantization = nil }, "quantization is"},
		{"name", func(m *Manifest, up *ManifestTensor) { up.Name = "model.x" }, "tensor model.x is listed twice, or no file holds it"},
		{"twice", func(m *Manifest, up *ManifestTensor) { m.Tensors = append(m.Tensors, *up) }, "tensor " + up + " is listed twice"},
		{"left out", func(m *Manifest, up *ManifestTensor) { m.Tensors = m.Tensors[:len(m.Tensors)-1] }, "tensor model.norm.weight is not listed"},
		{"family", func(m *Manifest, up *ManifestTensor) { m.Family = "qwen3" }, `family is "llama", not "qwen3"`},
		{"dimension", func(m *Manifest, up *ManifestTensor) { m.Dimensions.Hidden = 32 }, "dimensions.hidden_size is 64, not 32"},
		{"rope", func(m *Manifest, up *ManifestTensor) {
			m.Rope = map[string]Rope{FullAttention: {Type: "default", Theta: 5, Dims: 16}}
		}, "rope.full_attention.theta is 10000, not 5"},
		{"layer types", func(m *Manifest, up *ManifestTensor) { m.LayerTypes = m.LayerTypes[:1] }, "layer_types is"},
		{"end tokens", func(m *Manifest, up *ManifestTensor) { m.EndTokens = []int{1, 107} }, "end_tokens[1] is 106, not 107"},
		{"experts", func(m *Manifest, up *ManifestTensor) { m.MoE = &MoE{Experts: 2} }, "moe is null"},
		{"tied", func(m *Manifest, up *ManifestTensor) { m.TiedEmbeddings = false }, "tied_embeddings is true, not false"},
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			dir, _ := described(t)
			f := reopen(t, dir)
			m, err := ReadManifest(dir)
			if err != nil {
				t.Fatal(err)
			}
			x.lie(m, m.find(t, up))
			err = Check(m, f)
			wantErr(t, err, errs.KindValue, ManifestFile, x.want)
			if IsStale(err) {
				t.Errorf("%v counts as stale", err)
			}
			data, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			put(t, dir, ManifestFile, data)
			if _, _, err = Current(f); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("Current took it: %v", err)
			}
		})
	}
}

func TestManifestLinks(t *testing.T) {
	dir, m := described(t)
	outside := filepath.Join(t.TempDir(), "elsewhere")
	file := filepath.Join(dir, "model-2.safetensors")
	for _, step := range []error{os.Rename(file, outside), os.Symlink(outside, file)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	f := reopen(t, dir) // the weights themselves may be anywhere
	wantErr(t, Check(m, f), errs.KindValue, `file "model-2.safetensors" is a link that leaves the folder`, "elsewhere")
	wantErr(t, m.Write(dir), errs.KindValue, "is a link that leaves the folder")

	// A hub cache: snapshots/REV/file → ../../blobs/SUM.
	hub := t.TempDir()
	snapshot := filepath.Join(hub, "snapshots", "rev")
	for _, d := range []string{snapshot, filepath.Join(hub, "blobs")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"config.json", generationFile, "model-1.safetensors", "model-2.safetensors"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(hub, "blobs"), fmt.Sprint("sum", i), data)
		if err := os.Symlink(fmt.Sprint("../../blobs/sum", i), filepath.Join(snapshot, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Write(snapshot); err != nil {
		t.Error(err)
	}
	if _, note, err := Current(reopen(t, snapshot)); err != nil || note != "" {
		t.Errorf("%q %v", note, err)
	}
}

func TestReadManifestErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := ReadManifest(dir)
	wantErr(t, err, errs.KindNotFound, filepath.Join(dir, ManifestFile)+" does not exist")
	for text, want := range map[string]string{
		"{":                                  "not valid JSON at line 1",
		"[]":                                 "want an object, got []",
		`{"schema_version": "1"}`:            `schema_version: want an integer, got "1"`,
		`{"schema_version": 1.5}`:            "schema_version: want an integer, got 1.5",
		`{}`:                                 "out of date: schema_version is 0",
		`{"schema_version": 1, "colour": 3}`: "colour: no such key; there are config_sha256, dimensions, end_tokens, family,",
		`{"schema_version": 1, "Family": "llama"}`:                        "Family: no such key",
		`{"schema_version": 1, "family": 3}`:                              "family: want a string, got 3",
		`{"schema_version": 1, "end_tokens": 3}`:                          "end_tokens: want a list, got 3",
		`{"schema_version": 1, "end_tokens": [1, 2.5]}`:                   "end_tokens[1]: want an integer, got 2.5",
		`{"schema_version": 1, "dimensions": []}`:                         "dimensions: want an object, got []",
		`{"schema_version": 1, "dimensions": {"hidden_size": "64"}}`:      `dimensions.hidden_size: want an integer, got "64"`,
		`{"schema_version": 1, "dimensions": {"rms_norm_eps": true}}`:     "dimensions.rms_norm_eps: want a number, got true",
		`{"schema_version": 1, "dimensions": {"attention_k_eq_v": 0}}`:    "dimensions.attention_k_eq_v: want true or false, got 0",
		`{"schema_version": 1, "dimensions": {"Hidden": 64}}`:             "dimensions.Hidden: no such key; there are attention_k_eq_v,",
		`{"schema_version": 1, "rope": {"full_attention": {"dims": ""}}}`: `rope.full_attention.dims: want an integer, got ""`,
		`{"schema_version": 1, "moe": [1]}`:                               "moe: want an object, got [1]",
		`{"schema_version": 1, "tensors": [{}, {"offset": 1e30}]}`:        "tensors[1].offset: want an integer, got 1e30",
		`{"schema_version": 1, "tensors": [{"shape": [1, null, "x"]}]}`:   `tensors[0].shape[2]: want an integer, got "x"`,
		`{"schema_version": 1, "tensors": [{"quantization": 4}]}`:         "tensors[0].quantization: want an object, got 4",
	} {
		put(t, dir, ManifestFile, text)
		_, err := ReadManifest(dir)
		wantErr(t, err, errs.KindValue, ManifestFile, want)
	}
}

func TestCurrentWithout(t *testing.T) {
	dir := write(t, map[string]any{"config.json": tiny, "model.safetensors": tinyTensors()})
	m, note, err := Current(reopen(t, dir))
	if err != nil || note != "there is no model-manifest.json" || len(m.Tensors) != 20 {
		t.Errorf("%q %v", note, err)
	}
	// What was changed at load is not what a manifest in the folder describes.
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	f, err := OpenWith(dir, map[string]any{"vocab_size": 90})
	if err != nil {
		t.Fatal(err)
	}
	m, note, err = Current(f)
	if err != nil || !strings.Contains(note, "changed at load") || m.Dimensions.Vocab != 90 {
		t.Errorf("%q %v", note, err)
	}
	_, err = BuildManifest(open(t, quantConfig(config{"group_size": 64, "bits": 4}), tinyTensors()))
	wantErr(t, err, errs.KindValue, "is missing")
	f = open(t, tiny.with("quantization", config{"group_size": 64, "bits": 4}), tinyTensors().with("model.norm.scales", "F32 3"))
	_, err = BuildManifest(f)
	wantErr(t, err, errs.KindValue, "model.norm")
}
