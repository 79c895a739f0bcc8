package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"axlm/gocore/ngram"
	"axlm/mlxc"
	"axlm/mlxc/mlxctest"
)

const nanoVocab = 96

func TestMain(m *testing.M) { mlxctest.Main(m) }

// nano writes a two-layer qwen3 model with random weights; seed chooses them.
// Its logits are spread widely, so that no two of them nearly tie.
func nano(t *testing.T, seed uint64) string { return nanoOf(t, seed, 8) }

// nanoOf is nano with a head size of its own.
func nanoOf(t *testing.T, seed uint64, headDim int) string {
	return nanoKnowing(t, seed, headDim, nanoVocab)
}

// nanoKnowing is nanoOf with a vocabulary of its own.
func nanoKnowing(t *testing.T, seed uint64, headDim, vocab int) string {
	t.Helper()
	const hidden, inner, heads, kvHeads, layers = 32, 48, 4, 2, 2
	w := newWriter(t, seed, map[string]any{
		"model_type": "qwen3", "hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": inner,
		"num_attention_heads": heads, "num_key_value_heads": kvHeads, "head_dim": headDim, "rms_norm_eps": 1e-6,
		"vocab_size": vocab, "max_position_embeddings": 4096, "rope_theta": 10000, "tie_word_embeddings": true,
	})
	w.add("model.embed_tokens.weight", 0.3, 0, vocab, hidden)
	w.add("model.norm.weight", 0.5, 6, hidden)
	for i := range layers {
		at := fmt.Sprintf("model.layers.%d.", i)
		w.linear(at+"self_attn.q_proj", heads*headDim, hidden)
		w.linear(at+"self_attn.k_proj", kvHeads*headDim, hidden)
		w.linear(at+"self_attn.v_proj", kvHeads*headDim, hidden)
		w.linear(at+"self_attn.o_proj", hidden, heads*headDim)
		w.mlp(at+"mlp.", hidden, inner)
		w.add(at+"self_attn.q_norm.weight", 0.2, 1.5, headDim)
		w.add(at+"self_attn.k_norm.weight", 0.2, 1.5, headDim)
		w.norms(at, hidden)
	}
	return w.save()
}

// nanoRecurrent writes a qwen3_5 model of a recurrent and a full layer.
func nanoRecurrent(t *testing.T, seed uint64) string {
	t.Helper()
	const hidden, inner, heads, kvHeads, headDim, layers = 32, 48, 4, 2, 8, 2
	const keyHeads, valueHeads, size, conv = 2, 4, 8, 4
	w := newWriter(t, seed, map[string]any{
		"model_type": "qwen3_5", "hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": inner,
		"num_attention_heads": heads, "num_key_value_heads": kvHeads, "head_dim": headDim, "rms_norm_eps": 1e-6,
		"vocab_size": nanoVocab, "max_position_embeddings": 4096, "tie_word_embeddings": true,
		"linear_num_key_heads": keyHeads, "linear_num_value_heads": valueHeads, "linear_key_head_dim": size,
		"linear_value_head_dim": size, "linear_conv_kernel_dim": conv, "full_attention_interval": layers,
	})
	const prefix = "language_model.model."
	w.add(prefix+"embed_tokens.weight", 0.3, 0, nanoVocab, hidden)
	w.add(prefix+"norm.weight", 0.5, 6, hidden)
	for i := range layers {
		at := fmt.Sprintf("%slayers.%d.", prefix, i)
		w.mlp(at+"mlp.", hidden, inner)
		w.norms(at, hidden)
		if i == layers-1 {
			w.linear(at+"self_attn.q_proj", 2*heads*headDim, hidden)
			w.linear(at+"self_attn.k_proj", kvHeads*headDim, hidden)
			w.linear(at+"self_attn.v_proj", kvHeads*headDim, hidden)
			w.linear(at+"self_attn.o_proj", hidden, heads*headDim)
			w.add(at+"self_attn.q_norm.weight", 0.2, 1.5, headDim)
			w.add(at+"self_attn.k_norm.weight", 0.2, 1.5, headDim)
			continue
		}
		at += "linear_attn."
		channels := (2*keyHeads + valueHeads) * size
		w.linear(at+"in_proj_qkv", channels, hidden)
		w.linear(at+"in_proj_z", valueHeads*size, hidden)
		w.linear(at+"in_proj_b", valueHeads, hidden)
		w.linear(at+"in_proj_a", valueHeads, hidden)
		w.linear(at+"out_proj", hidden, valueHeads*size)
		w.add(at+"conv1d.weight", 0.5, 0, channels, conv, 1)
		w.add(at+"A_log", 0.5, 0, valueHeads)
		w.add(at+"dt_bias", 0.5, 0, valueHeads)
		w.add(at+"norm.weight", 0.1, 1, size)
	}
	return w.save()
}

// writer makes a model folder of random weights.
type writer struct {
	t      *testing.T
	dir    string
	random *rand.Rand
	s      *mlxc.Scope
	arrays map[string]mlxc.Array
}

func newWriter(t *testing.T, seed uint64, config map[string]any) *writer {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	stream, err := mlxc.NewStream(mlxc.Device{Type: mlxc.CPU})
	if err != nil {
		t.Fatal(err)
	}
	return &writer{
		t: t, dir: dir, random: rand.New(rand.NewPCG(seed, 1)), s: mlxc.NewScope(stream), arrays: map[string]mlxc.Array{},
	}
}

// add adds an array of normally distributed numbers.
func (w *writer) add(name string, deviation, mean float64, dims ...int) {
	n := 1
	for _, d := range dims {
		n *= d
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(mean + deviation*w.random.NormFloat64())
	}
	w.arrays[name] = w.s.FromFloat32s(values, dims...)
}

func (w *writer) linear(path string, out, in int) {
	w.add(path+".weight", 1.4/math.Sqrt(float64(in)), 0, out, in)
}

func (w *writer) mlp(at string, hidden, inner int) {
	w.linear(at+"gate_proj", inner, hidden)
	w.linear(at+"up_proj", inner, hidden)
	w.linear(at+"down_proj", hidden, inner)
}

func (w *writer) norms(at string, hidden int) {
	w.add(at+"input_layernorm.weight", 0.1, 1, hidden)
	w.add(at+"post_attention_layernorm.weight", 0.1, 1, hidden)
}

func (w *writer) save() string {
	w.t.Helper()
	defer w.s.Close()
	if err := mlxc.SaveSafetensors(filepath.Join(w.dir, "model.safetensors"), w.arrays, nil); err != nil {
		w.t.Fatal(err)
	}
	return w.dir
}

func start(t *testing.T, c Config) *Engine {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func load(t *testing.T, e *Engine, dir string) *Model {
	t.Helper()
	m, done, err := e.Load(dir, LoadOptions{}).Wait(time.Minute)
	if err != nil || !done {
		t.Fatalf("loading: done %v, %v", done, err)
	}
	return m
}

// collect reads up to n tokens of a request, all with n < 0, and closes it.
func collect(t *testing.T, r *Request, n int) []Token {
	t.Helper()
	defer r.Close()
	var out []Token
	for n < 0 || len(out) < n {
		token, status, err := r.Next(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if status == Pending {
			t.Fatal("no token within a minute")
		}
		if status == Finished {
			break
		}
		token.Free()
		out = append(out, token)
	}
	return out
}

func ids(tokens []Token) []int32 {
	out := make([]int32, len(tokens))
	for i, t := range tokens {
		out[i] = t.ID
	}
	return out
}

func generate(t *testing.T, m *Model, prompt []int32, o Options) []Token {
	t.Helper()
	if o.PrefillStepSize == 0 {
		o.PrefillStepSize = 2048
	}
	r, err := m.Generate(prompt, o)
	if err != nil {
		t.Fatal(err)
	}
	return collect(t, r, -1)
}

func prompt(seed uint64, n int) []int32 {
	random := rand.New(rand.NewPCG(seed, 2))
	out := make([]int32, n)
	for i := range out {
		out[i] = random.Int32N(nanoVocab)
	}
	return out
}

// oracle proposes what is known to come, spoiled from a position on: drafts
// that are right, wrong, or right at first.
type oracle struct {
	truth []int32 // the whole text that plain decoding gives
	depth int
	right int // drafts that are right; depth for all
}

func (o *oracle) Name() string                 { return "oracle" }
func (o *oracle) Observe(*ngram.History, int)  {}
func (o *oracle) Feedback(int, int)            {}
func (o *oracle) Truncate(*ngram.History, int) {}
func (o *oracle) Bytes() int                   { return 0 }
func (o *oracle) Draft(h *ngram.History, dst []ngram.Draft) int {
	n := 0
	for n < min(o.depth, len(dst)) && h.Len()+n < len(o.truth) {
		token := o.truth[h.Len()+n]
		if n >= o.right {
			token = (token + 1) % nanoVocab
		}
		dst[n] = ngram.Draft{Token: token, P: 0.9}
		n++
	}
	return n
}

// forced verifies whatever the proposers draft, at every step.
func forced(depth int) *ngram.Config {
	c := ngram.DefaultConfig()
	c.Adaptive, c.EMAThreshold, c.MaxDraftTokens = false, 0, depth
	return &c
}

func equal(t *testing.T, what string, got, want []int32) {
	t.Helper()
	if !slices.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Errorf("%s: %d tokens, want %d; they differ from %d on:\n%v\n%v", what, len(got), len(want), at, got, want)
	}
}
