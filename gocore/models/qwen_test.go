package models

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"axlm/mlxc"
)

// nanoQwen35 has gated delta layers, of more value heads than key heads, and
// gated full attention in every third; with experts if moe is set.
func nanoQwen35(moe bool) *folder {
	const layers, interval, keyHeads, valueHeads, keySize, valueSize, width = 5, 3, 2, 4, 8, 6, 4
	text := map[string]any{
		"hidden_size": nanoHidden, "num_hidden_layers": layers, "intermediate_size": nanoInner, "num_attention_heads": nanoHeads,
		"num_key_value_heads": 2, "head_dim": nanoHeadDim, "vocab_size": nanoVocab, "full_attention_interval": interval,
		"linear_num_key_heads": keyHeads, "linear_num_value_heads": valueHeads, "linear_key_head_dim": keySize,
		"linear_value_head_dim": valueSize, "linear_conv_kernel_dim": width, "tie_word_embeddings": true,
		"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
	}
	kind := "qwen3_5"
	if moe {
		kind = "qwen3_5_moe"
		maps.Copy(text, map[string]any{
			"num_experts": nanoExperts, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
		})
	}
	f := newFolder(11, map[string]any{"model_type": kind, "text_config": text})
	const model = "language_model.model."
	f.add(model+"embed_tokens.weight", 0.3, 0, nanoVocab, nanoHidden)
	f.norm(model+"norm", 6, nanoHidden)
	for i := range layers {
		at := fmt.Sprintf("%slayers.%d.", model, i)
		f.norm(at+"input_layernorm", 1, nanoHidden)
		f.norm(at+"post_attention_layernorm", 1, nanoHidden)
		if (i+1)%interval == 0 {
			f.attention(at, 2, nanoHeadDim)
			f.linear(at+"self_attn.q_proj", 2*nanoHeads*nanoHeadDim, nanoHidden)
			f.norm(at+"self_attn.q_norm", 1, nanoHeadDim)
			f.norm(at+"self_attn.k_norm", 1, nanoHeadDim)
		} else {
			linear := at + "linear_attn."
			f.linear(linear+"in_proj_qkv", 2*keyHeads*keySize+valueHeads*valueSize, nanoHidden)
			f.linear(linear+"in_proj_z", valueHeads*valueSize, nanoHidden)
			f.linear(linear+"in_proj_b", valueHeads, nanoHidden)
			f.linear(linear+"in_proj_a", valueHeads, nanoHidden)
			f.linear(linear+"out_proj", nanoHidden, valueHeads*valueSize)
			f.add(linear+"conv1d.weight", 0.6, 0, 2*keyHeads*keySize+valueHeads*valueSize, width, 1)
			f.add(linear+"A_log", 0.5, -1, valueHeads)
			f.add(linear+"dt_bias", 0.5, -1, valueHeads)
			f.norm(linear+"norm", 1, valueSize)
		}
		if moe {
			f.experts(at + "mlp.")
			f.mlp(at+"mlp.shared_expert.", 16)
			f.linear(at+"mlp.shared_expert_gate", 1, nanoHidden)
		} else {
			f.mlp(at+"mlp.", nanoInner)
		}
	}
	return f
}

const nanoExperts = 4

func (f *folder) experts(at string) {
	f.linear(at+"gate", nanoExperts, nanoHidden)
	f.mlp(at+"switch_mlp.", 16, nanoExperts)
}

// nanoQwen3MoE has experts in all layers but one.
func nanoQwen3MoE() *folder {
	const layers, dense = 3, 1
	f := newFolder(12, map[string]any{
		"model_type": "qwen3_moe", "hidden_size": nanoHidden, "num_hidden_layers": layers, "intermediate_size": nanoInner,
		"num_attention_heads": nanoHeads, "num_key_value_heads": 2, "head_dim": nanoHeadDim, "rms_norm_eps": 1e-6,
		"vocab_size": nanoVocab, "max_position_embeddings": 4096, "rope_theta": 1e4, "tie_word_embeddings": false,
		"num_experts": nanoExperts, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": true,
		"decoder_sparse_step": 1, "mlp_only_layers": []int{dense},
	})
	f.add("model.embed_tokens.weight", 0.3, 0, nanoVocab, nanoHidden)
	f.add("lm_head.weight", 0.3, 0, nanoVocab, nanoHidden)
	f.norm("model.norm", 6, nanoHidden)
	for i := range layers {
		at := fmt.Sprintf("model.layers.%d.", i)
		f.attention(at, 2, nanoHeadDim)
		f.norm(at+"self_attn.q_norm", 1, nanoHeadDim)
		f.norm(at+"self_attn.k_norm", 1, nanoHeadDim)
		f.norm(at+"input_layernorm", 1, nanoHidden)
		f.norm(at+"post_attention_layernorm", 1, nanoHidden)
		if i == dense {
			f.mlp(at+"mlp.", nanoInner)
		} else {
			f.experts(at + "mlp.")
		}
	}
	return f
}

// nanoQwen2 has biases on queries, keys and values.
func nanoQwen2() *folder {
	const layers = 2
	f := newFolder(13, map[string]any{
		"model_type": "qwen2", "hidden_size": nanoHidden, "num_hidden_layers": layers, "intermediate_size": nanoInner,
		"num_attention_heads": nanoHeads, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "vocab_size": nanoVocab,
		"head_dim": 1000, // not read: it is hidden_size over the heads
	})
	f.add("model.embed_tokens.weight", 0.3, 0, nanoVocab, nanoHidden)
	f.norm("model.norm", 6, nanoHidden)
	for i := range layers {
		at := fmt.Sprintf("model.layers.%d.", i)
		f.attention(at, 2, nanoHidden/nanoHeads)
		f.add(at+"self_attn.q_proj.bias", 0.5, 0, nanoHidden)
		f.add(at+"self_attn.k_proj.bias", 0.5, 0, nanoHidden/2)
		f.add(at+"self_attn.v_proj.bias", 0.5, 0, nanoHidden/2)
		f.mlp(at+"mlp.", nanoInner)
		f.norm(at+"input_layernorm", 1, nanoHidden)
		f.norm(at+"post_attention_layernorm", 1, nanoHidden)
	}
	return f
}

var qwens = map[string]func() *folder{
	"qwen3_5": func() *folder { return nanoQwen35(false) }, "qwen3_5 moe": func() *folder { return nanoQwen35(true) },
	"qwen3 moe": nanoQwen3MoE, "qwen2": nanoQwen2,
}

// Whatever is drafted, rejected and taken back, the ids are those of plain
// decoding.
func TestQwensGoBack(t *testing.T) {
	for name, nano := range qwens {
		t.Run(name, func(t *testing.T) {
			s := newScope(t)
			m := mustBuild(t, s, nano())
			random := rand.New(rand.NewPCG(5, 5))
			for _, length := range []int{1, 20} {
				prompt, truth := variedText(t, s, m, random, length, 80)
				r := newRunner(t, s, m, false)
				r.prefill(prompt, 1+random.IntN(length))
				if got := r.verified(prompt, truth, random); !slices.Equal(got, truth) {
					t.Errorf("prompt of %d tokens: verifying gives\n%v, want\n%v", length, got, truth)
				}
			}
		})
	}
}

// lastLogits appends ids to a cache and returns the logits of the last.
func (r *runner) lastLogits(ids ...int32) []float32 {
	r.t.Helper()
	r.s.Reset()
	out := r.s.Keep(r.m.Forward(r.s, One(r.s.FromInt32s(ids, 1, len(ids)), r.cache, 1)))
	if r.s.Err() != nil {
		r.t.Fatal(r.s.Err())
	}
	r.s.Close()
	defer out.Free()
	if err := mlxc.Eval(out); err != nil {
		r.t.Fatal(err)
	}
	values, err := out.Float32s()
	if err != nil {
		r.t.Fatal(err)
	}
	return values
}

// A forward of any width cut to any length, and cut again, leaves the state
// that a fresh run over the tokens kept has.
func TestQwen35RollsBackAtEveryLength(t *testing.T) {
	s := newScope(t)
	m := mustBuild(t, s, nanoQwen35(false))
	if r, ok := m.(interface{ Recurrent() bool }); !ok || !r.Recurrent() {
		t.Error("the model does not say that it is recurrent")
	}
	const most = 7
	ids := randomPrompt(rand.New(rand.NewPCG(6, 6)), 5+most+1)
	prompt, block, next := ids[:5], ids[5:5+most], ids[5+most]
	fresh := make([][]float32, most+1)
	for keep := range fresh {
		r := newRunner(t, s, m, false)
		r.lastLogits(prompt...)
		if keep > 0 {
			r.lastLogits(block[:keep]...)
		}
		fresh[keep] = r.lastLogits(next)
	}
	for width := 1; width <= most; width++ {
		for keep := 0; keep <= width; keep++ {
			r := newRunner(t, s, m, false)
			r.lastLogits(prompt...)
			r.cache.Checkpoint()
			r.lastLogits(block[:width]...)
			for again := keep; again >= 0; again -= 2 {
				r.rollback(again)
				if far := distance(r.lastLogits(next), fresh[again]); far > 1e-5 {
					t.Errorf("%d of %d tokens kept, then %d: the next logits are %g off", keep, width, again, far)
				}
				r.rollback(again) // without next
			}
		}
	}
}

// distance is the greatest difference, relative to the greatest number.
func distance(a, b []float32) float64 {
	var far, size float64
	for i := range a {
		far = math.Max(far, math.Abs(float64(a[i]-b[i])))
		size = math.Max(size, math.Abs(float64(b[i])))
	}
	return far / size
}

// A prompt gives the same ids in steps of any size.
func TestQwensInChunks(t *testing.T) {
	for name, nano := range qwens {
		t.Run(name, func(t *testing.T) {
			s := newScope(t)
			m := mustBuild(t, s, nano())
			prompt := randomPrompt(rand.New(rand.NewPCG(8, 8)), 40)
			var want []int32
			for _, step := range []int{len(prompt), 1, 7, len(prompt) - 1, len(prompt) + 1} {
				r := newRunner(t, s, m, false)
				r.prefill(prompt, step)
				got := r.plain(prompt, 30)
				if want == nil {
					want = got
				}
				if !slices.Equal(got, want) {
					t.Errorf("steps of %d give %v, want %v", step, got, want)
				}
			}
		})
	}
}

// The rows of a batch do not see each other, in the first forward and after.
func TestQwensInBatches(t *testing.T) {
	const length = 6
	for name, nano := range qwens {
		t.Run(name, func(t *testing.T) {
			s := newScope(t)
			m := mustBuild(t, s, nano())
			ids := randomPrompt(rand.New(rand.NewPCG(9, 9)), 2*length)
			both := batchLogits(t, s, m, ids, 2)
			alone := append(batchLogits(t, s, m, ids[:length], 1), batchLogits(t, s, m, ids[length:], 1)...)
			if far := distance(both, alone); far > 1e-5 {
				t.Errorf("a batch of two is %g off from each alone", far)
			}
		})
	}
}

// batchLogits runs all but the last token of each row, then the last, and
// returns its logits.
func batchLogits(t *testing.T, s *mlxc.Scope, m Model, ids []int32, batch int) []float32 {
	t.Helper()
	cache := m.NewCache(CacheOptions{})
	defer cache.Free()
	s.Reset()
	all := s.FromInt32s(ids, batch, len(ids)/batch)
	parts := s.SplitAt(all, 1, len(ids)/batch-1)
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	m.Forward(s, One(parts[0], cache, 0))
	out := s.Keep(m.Forward(s, One(parts[1], cache, 1)))
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	s.Close()
	defer out.Free()
	if err := mlxc.Eval(out); err != nil {
		t.Fatal(err)
	}
	values, err := out.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// publishedQwen is a converted folder as the original has it: other names,
// PyTorch's convolutions, norms as differences from 1, experts joined, and
// parts that text does not need.
func publishedQwen(f *folder) *folder {
	out := joined(f.renamed(func(name string) string {
		name = strings.Replace(name, "language_model.model.", "model.language_model.", 1)
		return strings.Replace(name, ".switch_mlp.", ".experts.switch_glu.", 1)
	}))
	for name, w := range out.tensors {
		values, dims := slices.Clone(w.values), w.dims
		switch {
		case strings.HasSuffix(name, "conv1d.weight"):
			dims = []int{dims[0], 1, dims[1]}
		case strings.HasSuffix(name, "norm.weight") && !strings.Contains(name, "linear_attn"):
			for i := range values {
				values[i]--
			}
		}
		out.tensors[name] = tensor{values, dims}
	}
	out.add("model.visual.patch.weight", 1, 0, 2, 2)
	out.add("mtp.fc.weight", 1, 0, 2, 2)
	return out
}

// A checkpoint as it was published and one that mlx_lm converted are the same
// model; nested or flat, too.
func TestPublishedQwens(t *testing.T) {
	s := newScope(t)
	ids := randomPrompt(rand.New(rand.NewPCG(10, 10)), 40)
	for name, f := range map[string]*folder{"dense": nanoQwen35(false), "moe": nanoQwen35(true)} {
		want := logits(t, s, mustBuild(t, s, f), ids)
		if far := distance(logits(t, s, mustBuild(t, s, publishedQwen(f)), ids), want); far > 1e-4 {
			t.Errorf("%s: the published form is %g off", name, far)
		}
		flat := f.renamed(func(name string) string { return strings.TrimPrefix(name, "language_model.") })
		flat.config = maps.Clone(f.config["text_config"].(map[string]any))
		flat.config["model_type"] = f.config["model_type"]
		if !slices.Equal(logits(t, s, mustBuild(t, s, flat), ids), want) {
			t.Errorf("%s: the flat form differs", name)
		}
	}
	f := nanoQwen3MoE()
	want := logits(t, s, mustBuild(t, s, f), ids)
	apart := f.renamed(func(name string) string { return name })
	for name, w := range f.tensors {
		at, module, ok := strings.Cut(name, "switch_mlp.")
		if !ok {
			continue
		}
		delete(apart.tensors, name)
		size := len(w.values) / nanoExperts
		for e := range nanoExperts {
			apart.tensors[fmt.Sprintf("%sexperts.%d.%s", at, e, module)] = tensor{w.values[e*size : (e+1)*size], w.dims[1:]}
		}
	}
	if !slices.Equal(logits(t, s, mustBuild(t, s, apart), ids), want) {
		t.Error("experts stored one by one differ")
	}
}

// What does not fit is an error that names it.
func TestQwenErrors(t *testing.T) {
	s := newScope(t)
	for want, spoil := range map[string]func(f *folder){
		"linear_num_key_heads": func(f *folder) { f.config["text_config"].(map[string]any)["linear_num_key_heads"] = 3 },
		"conv1d.weight": func(f *folder) {
			f.add("language_model.model.layers.0.linear_attn.conv1d.weight", 1, 0, 56, 3, 1)
		},
		"language_model.model.layers.1.linear_attn.A_log": func(f *folder) { delete(f.tensors, "language_model.model.layers.1.linear_attn.A_log") },
		"language_model.model.layers.0.extra":             func(f *folder) { f.add("model.language_model.layers.0.extra", 1, 0, 2) },
		"9 of 4 experts":                                  func(f *folder) { f.config["text_config"].(map[string]any)["num_experts_per_tok"] = 9 },
		"tie_word_embeddings":                             func(f *folder) { f.config["text_config"].(map[string]any)["tie_word_embeddings"] = "yes" },
	} {
		f := nanoQwen35(strings.Contains(want, "experts"))
		spoil(f)
		if _, err := build(t, s, f.write(t, s)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error that names %s, got %v", want, err)
		}
	}
}
