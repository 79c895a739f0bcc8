package weights

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"axlm/gocore/errs"
)

// table describes tensors to write: name → "DTYPE d0 d1 …".
type table map[string]string

// header lays the tensors out one after the other, in order of their names.
func (tb table) header() (text []byte, dataBytes int64) {
	names := make([]string, 0, len(tb))
	for name := range tb {
		names = append(names, name)
	}
	sort.Strings(names)
	entries := make([]string, 0, len(names))
	for _, name := range names {
		fields := strings.Fields(tb[name])
		size := dtypeBytes[fields[0]]
		for _, dim := range fields[1:] {
			var n int64
			fmt.Sscan(dim, &n)
			size *= n
		}
		entries = append(entries, fmt.Sprintf(`%q:{"dtype":%q,"shape":[%s],"data_offsets":[%d,%d]}`,
			name, fields[0], strings.Join(fields[1:], ","), dataBytes, dataBytes+size))
		dataBytes += size
	}
	return []byte(`{"__metadata__":{"format":"mlx"},` + strings.Join(entries, ",") + "}"), dataBytes
}

// safetensors is a whole file with the given header, padded to end at size
// bytes of data.
func safetensors(header []byte, dataBytes int64) []byte {
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	file = append(file, header...)
	return append(file, make([]byte, dataBytes)...)
}

func (tb table) file() []byte { return safetensors(tb.header()) }

// with is a copy with more or other entries; "" removes one.
func (tb table) with(pairs ...string) table {
	out := table{}
	for name, spec := range tb {
		out[name] = spec
	}
	for i := 0; i < len(pairs); i += 2 {
		if out[pairs[i]] = pairs[i+1]; pairs[i+1] == "" {
			delete(out, pairs[i])
		}
	}
	return out
}

// config is a config.json to write.
type config map[string]any

func (c config) with(pairs ...any) config {
	out := config{}
	for key, value := range c {
		out[key] = value
	}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i].(string)] = pairs[i+1]
	}
	return out
}

func (c config) bytes(t testing.TB) []byte {
	t.Helper()
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// write makes a folder; values are []byte, string, config or table.
func write(t testing.TB, files map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		put(t, dir, name, content)
	}
	return dir
}

func put(t testing.TB, dir, name string, content any) {
	t.Helper()
	var data []byte
	switch c := content.(type) {
	case []byte:
		data = c
	case string:
		data = []byte(c)
	case config:
		data = c.bytes(t)
	case table:
		data = c.file()
	default:
		t.Fatalf("cannot write a %T", content)
	}
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, c config, tb table) *Folder {
	t.Helper()
	f, err := Open(write(t, map[string]any{"config.json": c, "model.safetensors": tb}))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// wantErr checks an error's class and that its text holds each of the parts.
func wantErr(t testing.TB, err error, kind string, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want a %s with %q", kind, parts)
	}
	if got := errs.Kind(err); got != kind {
		t.Errorf("%v: a %s, want a %s", err, got, kind)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

// tiny is a llama of two layers: hidden 64, 4 heads of 16, 2 KV heads.
var tiny = config{
	"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128,
	"num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": 96,
	"tie_word_embeddings": true, "eos_token_id": 7,
}

func tinyTensors() table {
	tb := table{"model.embed_tokens.weight": "BF16 96 64", "model.norm.weight": "BF16 64"}
	for layer := range 2 {
		for name, spec := range map[string]string{
			"self_attn.q_proj.weight": "BF16 64 64", "self_attn.k_proj.weight": "BF16 32 64",
			"self_attn.v_proj.weight": "BF16 32 64", "self_attn.o_proj.weight": "BF16 64 64",
			"mlp.gate_proj.weight": "BF16 128 64", "mlp.up_proj.weight": "BF16 128 64", "mlp.down_proj.weight": "BF16 64 128",
			"input_layernorm.weight": "BF16 64", "post_attention_layernorm.weight": "BF16 64",
		} {
			tb[fmt.Sprintf("model.layers.%d.%s", layer, name)] = spec
		}
	}
	return tb
}
