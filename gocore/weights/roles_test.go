package weights

import "testing"

func TestRoles(t *testing.T) {
	cases := []struct {
		name, role, part string
		layer            int
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

func TestByRole(t *testing.T) {
	f := open(t, tiny, tinyTensors())
	for role, want := range map[string]string{"embed_tokens": "model.embed_tokens", "final_norm": "model.norm"} {
		if path, ok := f.ByRole(role, NoLayer); !ok || path != want {
			t.Errorf("%s: %q", role, path)
		}
	}
	if path, ok := f.ByRole("mlp_up", 1); !ok || path != "model.layers.1.mlp.up_proj" {
		t.Errorf("mlp_up: %q", path)
	}
	for _, x := range []roleKey{{"mlp_up", 2}, {"lm_head", NoLayer}, {RoleOther, NoLayer}} {
		if path, ok := f.ByRole(x.role, x.layer); ok {
			t.Errorf("%v: found %q", x, path)
		}
	}
}
