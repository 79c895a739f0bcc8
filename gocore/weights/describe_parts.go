package weights

import (
	"slices"

	"axlm/gocore/errs"
)

// ropes reads the rotary embedding of each kind of layer that rotates.
func ropes(d *Description, r Reader) map[string]Rope {
	out := map[string]Rope{}
	for _, kind := range []string{FullAttention, SlidingAttention} {
		if slices.Contains(d.LayerTypes, kind) {
			out[kind] = rope(d, kind, r)
		}
	}
	return out
}

// rope follows each family's own way of naming base and scaling.
func rope(d *Description, kind string, r Reader) Rope {
	dims := d.Dimensions.HeadDim
	switch d.Family {
	case "qwen3_5", "qwen3_5_moe":
		p := r.Map("rope_parameters")
		theta := p.FloatOr("rope_theta", 1e5)
		return ropeFrom(p, theta, int(float64(dims)*p.FloatOr("partial_rotary_factor", 0.25)))
	case "gemma3", "gemma3_text":
		if kind == SlidingAttention {
			return Rope{Type: "default", Theta: r.Float("rope_local_base_freq"), Dims: dims}
		}
		return ropeFrom(r.Map("rope_scaling"), r.Float("rope_theta"), dims)
	case "gemma4", "gemma4_text":
		if kind == FullAttention && d.Dimensions.GlobalHeadDim > 0 {
			dims = d.Dimensions.GlobalHeadDim
		}
		if !r.Has("rope_parameters") {
			if kind == FullAttention {
				return Rope{Type: "proportional", Theta: 1e6, Dims: dims, Scaling: map[string]any{"partial_rotary_factor": 0.25}}
			}
			return Rope{Type: "default", Theta: 1e4, Dims: dims}
		}
		p := r.Map("rope_parameters").Map(kind)
		return ropeFrom(p, p.FloatOr("rope_theta", 1e4), dims)
	case "qwen3":
		// transformers 5 nests both under rope_parameters.
		p := r.Map("rope_parameters")
		scaling := p
		if r.Has("rope_scaling") {
			scaling = r.Map("rope_scaling")
		}
		if r.Has("rope_theta") {
			return ropeFrom(scaling, r.Float("rope_theta"), dims)
		}
		if !p.Has("rope_theta") {
			r.Fail(r.Config().Missing("rope_theta"))
		}
		return ropeFrom(scaling, p.Float("rope_theta"), dims)
	}
	return ropeFrom(r.Map("rope_scaling"), r.Float("rope_theta"), dims)
}

func ropeFrom(scaling Reader, theta float64, dims int) Rope {
	out := Rope{Type: "default", Theta: theta, Dims: dims}
	if values := scaling.Config().Values(); len(values) > 0 {
		out.Scaling, _ = tagged(values).(map[string]any)
	}
	for _, key := range []string{"type", "rope_type"} {
		if scaling.Has(key) {
			out.Type = scaling.String(key)
			break
		}
	}
	return out
}

func linearDims(r Reader) *LinearDims {
	d := &LinearDims{
		KeyHeads: r.Count("linear_num_key_heads"), ValueHeads: r.Count("linear_num_value_heads"),
		KeyDim: r.Count("linear_key_head_dim"), ValueDim: r.Count("linear_value_head_dim"),
		ConvKernel: r.Count("linear_conv_kernel_dim"),
	}
	if r.Err() == nil && d.ValueHeads%d.KeyHeads != 0 {
		r.Fail(errs.Value("%s: %d does not divide linear_num_value_heads %d",
			r.Config().where("linear_num_key_heads"), d.KeyHeads, d.ValueHeads))
	}
	return d
}

// moe reads the expert layers; nil for a dense model.
func moe(d *Description, r Reader) *MoE {
	m := &MoE{}
	is := func(layer int) bool { return true }
	switch d.Family {
	case "qwen3_moe":
		step, dense := r.Count("decoder_sparse_step"), r.Ints("mlp_only_layers")
		is = func(layer int) bool { return !slices.Contains(dense, layer) && (layer+1)%step == 0 }
		m.PerToken, m.Normalized = r.Int("num_experts_per_tok"), r.Bool("norm_topk_prob")
	case "qwen3_5", "qwen3_5_moe":
		m.PerToken, m.Normalized = r.IntOr("num_experts_per_tok", 0), r.Bool("norm_topk_prob")
		m.SharedIntermediate = r.IntOr("shared_expert_intermediate_size", 0)
	case "gemma4", "gemma4_text":
		if !r.BoolOr("enable_moe_block", false) {
			return nil
		}
		m.PerToken, m.Normalized = r.Count("top_k_experts"), true
	default:
		return nil
	}
	m.Experts = r.IntOr("num_experts", 0)
	if r.Err() != nil || m.Experts <= 0 {
		return nil
	}
	m.Intermediate = r.Count("moe_intermediate_size")
	if m.PerToken < 1 || m.PerToken > m.Experts {
		r.Fail(errs.Value("%s: %d of %d experts per token", r.Config().where("num_experts"), m.PerToken, m.Experts))
	}
	for layer := range d.LayerTypes {
		if r.Err() == nil && is(layer) {
			m.Layers = append(m.Layers, layer)
		}
	}
	return m
}

// kvSharing lets each of the last layers use the keys and values of the last
// layer of its kind that has its own; nil where none are shared.
func kvSharing(c *Config, types []string) (*KVSharing, error) {
	const key = "num_kv_shared_layers"
	shared, err := c.IntDefault(key, 0)
	if err != nil || shared == 0 {
		return nil, err
	}
	if shared < 0 || shared >= len(types) {
		return nil, c.Wrong(key, "fewer than the layers, of which the others must have their own")
	}
	s := &KVSharing{SharedLayers: shared, Sources: make([]int, len(types))}
	last := map[string]int{}
	for i, kind := range types {
		if i < len(types)-shared {
			last[kind] = i
		}
		source, ok := last[kind]
		if !ok {
			return nil, errs.Value("%s: layer %d (%s) shares keys and values, but no earlier layer of its kind has any",
				c.where(key), i, kind)
		}
		s.Sources[i] = source
	}
	return s, nil
}

// tied reports whether the output head is the embedding. gemma3 has no setting
// for it: there the head's own tensor decides.
func (f *Folder) tied(family string, r Reader) bool {
	if family != "gemma3" && family != "gemma3_text" {
		return r.Bool("tie_word_embeddings")
	}
	for name := range f.source {
		path, part := SplitName(name)
		if role, _ := RoleOf(path); role == LMHead && part == "weight" {
			return false
		}
	}
	return true
}
