package weights

import "testing"

func TestRoles(t *testing.T) {
	cases := []struct {
		name  string
		role  Role
		part  string
		layer int
	}{
		{"model.embed_tokens.weight", "embed_tokens", "weight", NoLayer},
		{"language_model.model.embed_tokens.scales", "embed_tokens", "scales", NoLayer},
		{"model.language_model.norm.weight", "final_norm", "weight", NoLayer},
		{"lm_head.weight", "lm_head", "weight", NoLayer},
		{"language_model.lm_head.biases", "lm_head", "biases", NoLayer},
		{"language_model.model.embed_tokens_per_layer.weight", "per_layer_embed_tokens", "weight", NoLayer},
		{"language_model.model.per_layer_model_projection.weight", "per_layer_model_projection", "weight", NoLayer},
		{"model.layers.0.self_attn.q_proj.weight", "attn_q", "weight", 0},
		{"model.layers.12.self_attn.k_proj.bias", "attn_k", "bias", 12},
		{"model.layers.3.self_attn.q_norm.weight", "attn_q_norm", "weight", 3},
		{"model.layers.3.mlp.down_proj.weight", "mlp_down", "weight", 3},
		{"model.layers.3.mlp.gate.weight", "router", "weight", 3},
		{"model.layers.3.mlp.switch_mlp.up_proj.weight", "experts_up", "weight", 3},
		{"model.layers.3.mlp.shared_expert.gate_proj.weight", "shared_expert_gate", "weight", 3},
		{"model.layers.3.mlp.shared_expert_gate.weight", "shared_expert_router", "weight", 3},
		{"model.layers.3.router.per_expert_scale", "router_expert_scale", "", 3},
		{"model.layers.3.router.proj.weight", "router", "weight", 3},
		{"model.layers.3.experts.switch_glu.gate_proj.weight", "experts_gate", "weight", 3},
		{"model.language_model.layers.3.mlp.experts.gate_up_proj", "experts_gate_up", "", 3},
		{"language_model.model.layers.3.linear_attn.A_log", "linear_attn_a_log", "", 3},
		{"language_model.model.layers.3.linear_attn.dt_bias", "linear_attn_dt_bias", "", 3},
		{"language_model.model.layers.3.linear_attn.conv1d.weight", "linear_attn_conv", "weight", 3},
		{"language_model.model.layers.3.layer_scalar", "layer_scalar", "", 3},
		{"language_model.model.layers.3.per_layer_input_gate.weight", "per_layer_gate", "weight", 3},
		{"model.layers.3.post_feedforward_layernorm_2.weight", "post_experts_norm", "weight", 3},
		{"model.layers.3.mlp.experts.12.up_proj.weight", ExpertUp, "weight", 3},
		{"model.layers.3.mlp.experts.down_proj", ExpertsDown, "", 3},
		{"model.layers.3.mlp.experts.1.x.weight", RoleOther, "weight", 3},
		{"model.layers.3.self_attn.rotary_emb.inv_freq", RoleOther, "", 3},
		{"model.layers.x.mlp.up_proj.weight", RoleOther, "weight", NoLayer},
		{"model.layers.-1.mlp.up_proj.weight", RoleOther, "weight", NoLayer},
		{"model.layers.01.mlp.up_proj.weight", RoleOther, "weight", NoLayer},
		{"vision_tower.layers.3.mlp.up_proj.weight", RoleOther, "weight", NoLayer},
		{"mtp.layers.0.self_attn.q_proj.weight", RoleOther, "weight", NoLayer},
		{"", RoleOther, "", NoLayer},
	}
	for _, x := range cases {
		path, part := SplitName(x.name)
		role, layer := RoleOf(path)
		if role != x.role || part != x.part || layer != x.layer {
			t.Errorf("%q: %s %q in layer %d, want %s %q in %d", x.name, role, part, layer, x.role, x.part, x.layer)
		}
	}
}

// Every role has a name, every name a role, and no two share one.
func TestNamesOfRoles(t *testing.T) {
	for role, name := range modelNames {
		for _, prefix := range []string{"", languageModel} {
			if got, layer := RoleOf(prefix + name); got != role || layer != NoLayer {
				t.Errorf("%s: %s in layer %d", prefix+name, got, layer)
			}
		}
	}
	for _, names := range []map[Role]string{layerNames, gemma4Names} {
		for role, name := range names {
			if got, layer := RoleOf("model.layers.7." + name); got != role || layer != 7 {
				t.Errorf("%s: %s in layer %d", name, got, layer)
			}
		}
	}
}

func partsOf(t *testing.T, f *Folder) *Parts {
	t.Helper()
	m, err := BuildManifest(f)
	if err == nil {
		err = f.Sanitize()
	}
	if err != nil {
		t.Fatal(err)
	}
	return f.Parts(m)
}

func TestParts(t *testing.T) {
	p := partsOf(t, open(t, tiny, tinyTensors()))
	for _, x := range []struct {
		layer int
		role  Role
		has   bool
		want  string
	}{
		{NoLayer, EmbedTokens, true, "model.embed_tokens"},
		{NoLayer, FinalNorm, true, "model.norm"},
		{1, MLPUp, true, "model.layers.1.mlp.up_proj"},
		{1, AttnQ, true, "model.layers.1.self_attn.q_proj"},
		// What is not there has the name that it should have.
		{2, MLPUp, false, "model.layers.2.mlp.up_proj"},
		{NoLayer, LMHead, false, "lm_head"},
		{0, Router, false, "model.layers.0.mlp.gate"},
		{0, AttnQNorm, false, "model.layers.0.self_attn.q_norm"},
	} {
		if got, has := p.Path(x.layer, x.role), p.Has(x.layer, x.role); got != x.want || has != x.has {
			t.Errorf("%s in layer %d: %q, there %v", x.role, x.layer, got, has)
		}
	}
	g := partsOf(t, open(t, config{"model_type": "gemma4", "text_config": gemma4Text}, enough(40)))
	for role, want := range map[Role]string{
		Router: "router.proj", ExpertsUp: "experts.switch_glu.up_proj", AttnK: "self_attn.k_proj",
	} {
		if got := g.Path(3, role); got != "language_model.model.layers.3."+want {
			t.Errorf("gemma4: %s is %q", role, got)
		}
	}
	if got := g.Path(NoLayer, LMHead); got != "language_model.lm_head" {
		t.Errorf("gemma4: the head is %q", got)
	}
}

func TestPartsOneByOne(t *testing.T) {
	const at = "model.layers.1.mlp.experts."
	tb := tinyTensors().with(at+"0.up_proj.weight", "F32 4 4", at+"10.up_proj.weight", "F32 4 4")
	p := partsOf(t, open(t, moeBase.with("num_hidden_layers", 2), tb))
	for expert, has := range map[int]bool{0: true, 10: true, 1: false} {
		want := at + map[int]string{0: "0", 10: "10", 1: "1"}[expert] + ".up_proj"
		if got := p.ExpertPath(1, ExpertUp, expert); got != want || p.HasExpert(1, ExpertUp, expert) != has {
			t.Errorf("expert %d: %q", expert, got)
		}
	}
	if p.Has(1, ExpertUp) || p.HasExpert(0, ExpertUp, 0) {
		t.Error("found where it is not")
	}
}

// A role that two tensors have is the first one's by name; the other one is
// told as unused.
func TestPartsTwice(t *testing.T) {
	f := open(t, tiny, tinyTensors().with("language_model.norm.weight", "BF16 64"))
	p := partsOf(t, f)
	if got := p.Path(NoLayer, FinalNorm); got != "language_model.norm" {
		t.Errorf("%q", got)
	}
}

func TestSanitize(t *testing.T) {
	qwen := config{"model_type": "qwen3_5", "text_config": qwen35Text}
	nested, text := config{"model_type": "gemma4", "text_config": gemma4Text}, gemma4Text.with("model_type", "gemma4_text")
	vision := config{"model_type": "gemma3", "text_config": config{}}
	for _, x := range []struct {
		c        config
		from, to string // to "": dropped
	}{
		{tiny, "model.layers.0.self_attn.rotary_emb.inv_freq", ""},
		{tiny, "lm_head.weight", "lm_head.weight"},
		{moeBase, "model.layers.1.mlp.experts.down_proj", "model.layers.1.mlp.switch_mlp.down_proj.weight"},
		{moeBase, "model.layers.1.mlp.experts.gate_up_proj", "model.layers.1.mlp.experts.gate_up_proj"},
		{qwen, "model.visual.patch.weight", ""},
		{qwen, "vision_tower.x", ""},
		{qwen, "mtp.layers.0.mlp.up_proj.weight", ""},
		{qwen, "model.language_model.norm.weight", "language_model.model.norm.weight"},
		{qwen, "model.norm.weight", "language_model.model.norm.weight"},
		{qwen, "lm_head.weight", "language_model.lm_head.weight"},
		{qwen, "language_model.model.norm.weight", "language_model.model.norm.weight"},
		{nested, "model.language_model.norm.weight", "language_model.model.norm.weight"},
		{nested, "language_model.model.norm.weight", "language_model.model.norm.weight"},
		{nested, "model.embed_audio.x.weight", ""},
		{nested, "model.language_model.layers.3.self_attn.k_proj.weight", "language_model.model.layers.3.self_attn.k_proj.weight"},
		{nested, "model.language_model.layers.4.self_attn.k_proj.weight", ""}, // two layers are shared
		{nested, "language_model.model.layers.5.self_attn.k_norm.weight", ""},
		{nested, "language_model.model.layers.5.self_attn.q_proj.weight", "language_model.model.layers.5.self_attn.q_proj.weight"},
		{text, "model.layers.4.self_attn.v_proj.weight", ""},
		{text, "model.layers.0.self_attn.q_proj.input_max", ""},
		{text, "model.layers.0.experts.down_proj", "model.layers.0.experts.switch_glu.down_proj.weight"},
		{vision, "vision_tower.x.weight", ""},
		{vision, "multi_modal_projector.x.weight", ""},
		{vision, "language_model.model.norm.weight", "language_model.model.norm.weight"},
		{config{"model_type": "gemma3_text"}, "model.norm.weight", "model.norm.weight"},
	} {
		f := open(t, x.c, enough(40).with(x.from, "F32 1"))
		if err := f.Sanitize(); err != nil {
			t.Errorf("%s: %v", x.from, err)
			continue
		}
		got := ""
		for name, tensor := range f.Tensors {
			if tensor.Source == x.from {
				got = name
			}
		}
		if got != x.to {
			t.Errorf("%s of %s is %q, want %q", x.from, f.ModelType, got, x.to)
		}
	}
	twice := open(t, qwen, enough(40).with("model.norm.weight", "F32 1", "model.language_model.norm.weight", "F32 1"))
	wantErr(t, twice.Sanitize(), "ValueError", "both stand for language_model.model.norm.weight")
}
