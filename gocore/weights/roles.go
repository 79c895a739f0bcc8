package weights

import (
	"strconv"
	"strings"
)

// RoleOther is the role of a tensor that the table does not know.
const RoleOther = "other"

// NoLayer is the layer of what belongs to the whole model.
const NoLayer = -1

// modelRoles are the modules outside the layers.
var modelRoles = map[string]string{
	"embed_tokens":               "embed_tokens",
	"norm":                       "final_norm",
	"lm_head":                    "lm_head",
	"embed_tokens_per_layer":     "per_layer_embed_tokens",
	"per_layer_model_projection": "per_layer_model_projection",
	"per_layer_projection_norm":  "per_layer_projection_norm",
}

// layerRoles are the modules of a layer, by their path within it. Norms are
// named for their place, which is not the same work in every family: after
// attention, llama normalises the MLP's input, gemma the attention's output.
var layerRoles = map[string]string{
	"input_layernorm":              "input_norm",
	"post_attention_layernorm":     "post_attn_norm",
	"pre_feedforward_layernorm":    "pre_mlp_norm",
	"post_feedforward_layernorm":   "post_mlp_norm",
	"post_feedforward_layernorm_1": "post_dense_norm",
	"pre_feedforward_layernorm_2":  "pre_experts_norm",
	"post_feedforward_layernorm_2": "post_experts_norm",
	"layer_scalar":                 "layer_scalar",

	"self_attn.q_proj": "attn_q",
	"self_attn.k_proj": "attn_k",
	"self_attn.v_proj": "attn_v",
	"self_attn.o_proj": "attn_o",
	"self_attn.q_norm": "attn_q_norm",
	"self_attn.k_norm": "attn_k_norm",

	"linear_attn.in_proj_qkv": "linear_attn_qkv",
	"linear_attn.in_proj_z":   "linear_attn_z",
	"linear_attn.in_proj_b":   "linear_attn_b",
	"linear_attn.in_proj_a":   "linear_attn_a",
	"linear_attn.conv1d":      "linear_attn_conv",
	"linear_attn.A_log":       "linear_attn_a_log",
	"linear_attn.dt_bias":     "linear_attn_dt_bias",
	"linear_attn.norm":        "linear_attn_norm",
	"linear_attn.out_proj":    "linear_attn_out",

	"mlp.gate_proj": "mlp_gate",
	"mlp.up_proj":   "mlp_up",
	"mlp.down_proj": "mlp_down",

	"mlp.gate":                "router",
	"router.proj":             "router",
	"router.scale":            "router_scale",
	"router.per_expert_scale": "router_expert_scale",

	"mlp.switch_mlp.gate_proj":     "experts_gate",
	"mlp.switch_mlp.up_proj":       "experts_up",
	"mlp.switch_mlp.down_proj":     "experts_down",
	"experts.switch_glu.gate_proj": "experts_gate",
	"experts.switch_glu.up_proj":   "experts_up",
	"experts.switch_glu.down_proj": "experts_down",
	// As published, before mlx_lm's conversion: gate and up in one.
	"mlp.experts.gate_up_proj": "experts_gate_up",
	"mlp.experts.down_proj":    "experts_down",
	"experts.gate_up_proj":     "experts_gate_up",
	"experts.down_proj":        "experts_down",

	"mlp.shared_expert.gate_proj": "shared_expert_gate",
	"mlp.shared_expert.up_proj":   "shared_expert_up",
	"mlp.shared_expert.down_proj": "shared_expert_down",
	"mlp.shared_expert_gate":      "shared_expert_router",

	"per_layer_input_gate":      "per_layer_gate",
	"per_layer_projection":      "per_layer_projection",
	"post_per_layer_input_norm": "per_layer_norm",
}

// partSuffixes are the arrays that a module may hold. A name without such a
// suffix is an array of its own.
var partSuffixes = []string{"weight", "scales", "biases", "bias"}

// SplitName cuts a tensor's name into the module's path and the part: weight,
// scales, biases, bias, or "" for an array that stands alone.
func SplitName(name string) (path, part string) {
	for _, suffix := range partSuffixes {
		if path, ok := strings.CutSuffix(name, "."+suffix); ok {
			return path, suffix
		}
	}
	return name, ""
}

// RoleOf says what a module of that path is for, and in which layer. It knows
// the names that the families use after sanitising, and the prefixes before.
func RoleOf(path string) (role string, layer int) {
	rest := path
	for {
		shorter := strings.TrimPrefix(strings.TrimPrefix(rest, "language_model."), "model.")
		if shorter == rest {
			break
		}
		rest = shorter
	}
	if role, ok := modelRoles[rest]; ok {
		return role, NoLayer
	}
	inLayers, ok := strings.CutPrefix(rest, "layers.")
	if !ok {
		return RoleOther, NoLayer
	}
	number, module, _ := strings.Cut(inLayers, ".")
	layer, err := strconv.Atoi(number)
	if err != nil || strconv.Itoa(layer) != number || layer < 0 {
		return RoleOther, NoLayer
	}
	if role, ok := layerRoles[module]; ok {
		return role, layer
	}
	return RoleOther, layer
}

type roleKey struct {
	role  string
	layer int
}

// indexRoles maps roles to paths for the table as it now is.
func (f *Folder) indexRoles() {
	f.roles = map[roleKey]string{}
	for name := range f.Tensors {
		path, _ := SplitName(name)
		role, layer := RoleOf(path)
		key := roleKey{role, layer}
		// Of several paths in one role (other, above all) the first by name
		// is kept, so that the answer does not depend on map order.
		if have, taken := f.roles[key]; role != RoleOther && (!taken || path < have) {
			f.roles[key] = path
		}
	}
}

// ByRole is the path of the module with that role in that layer (NoLayer for
// what belongs to the whole model); false if the folder has none. Claims takes
// the module by this path.
func (f *Folder) ByRole(role string, layer int) (path string, ok bool) {
	path, ok = f.roles[roleKey{role, layer}]
	return path, ok
}
