package weights

import (
	"strconv"
	"strings"
)

// Role is what a module is for. Families ask for modules by role and layer, so
// that names of tensors are here alone.
type Role string

// Roles of the whole model.
const (
	EmbedTokens            Role = "embed_tokens"
	FinalNorm              Role = "final_norm"
	LMHead                 Role = "lm_head"
	PerLayerEmbedTokens    Role = "per_layer_embed_tokens"
	PerLayerModelProject   Role = "per_layer_model_projection"
	PerLayerProjectionNorm Role = "per_layer_projection_norm"
)

// Roles in a layer. Norms are named for their place, which is not the same
// work in every family: after attention, llama normalises the MLP's input,
// gemma the attention's output.
const (
	InputNorm       Role = "input_norm"
	PostAttnNorm    Role = "post_attn_norm"
	PreMLPNorm      Role = "pre_mlp_norm"
	PostMLPNorm     Role = "post_mlp_norm"
	PostDenseNorm   Role = "post_dense_norm"
	PreExpertsNorm  Role = "pre_experts_norm"
	PostExpertsNorm Role = "post_experts_norm"
	LayerScalar     Role = "layer_scalar"

	AttnQ     Role = "attn_q"
	AttnK     Role = "attn_k"
	AttnV     Role = "attn_v"
	AttnO     Role = "attn_o"
	AttnQNorm Role = "attn_q_norm"
	AttnKNorm Role = "attn_k_norm"

	LinearAttnQKV    Role = "linear_attn_qkv"
	LinearAttnZ      Role = "linear_attn_z"
	LinearAttnB      Role = "linear_attn_b"
	LinearAttnA      Role = "linear_attn_a"
	LinearAttnConv   Role = "linear_attn_conv"
	LinearAttnALog   Role = "linear_attn_a_log"
	LinearAttnDtBias Role = "linear_attn_dt_bias"
	LinearAttnNorm   Role = "linear_attn_norm"
	LinearAttnOut    Role = "linear_attn_out"

	MLPGate Role = "mlp_gate"
	MLPUp   Role = "mlp_up"
	MLPDown Role = "mlp_down"

	Router            Role = "router"
	RouterScale       Role = "router_scale"
	RouterExpertScale Role = "router_expert_scale"
	ExpertsGate       Role = "experts_gate"
	ExpertsUp         Role = "experts_up"
	ExpertsDown       Role = "experts_down"
	ExpertsGateUp     Role = "experts_gate_up" // as published: both in one
	// One expert's, where they are stored one by one; Parts.Expert numbers them.
	ExpertGate Role = "expert_gate"
	ExpertUp   Role = "expert_up"
	ExpertDown Role = "expert_down"

	SharedExpertGate   Role = "shared_expert_gate"
	SharedExpertUp     Role = "shared_expert_up"
	SharedExpertDown   Role = "shared_expert_down"
	SharedExpertRouter Role = "shared_expert_router"

	PerLayerGate       Role = "per_layer_gate"
	PerLayerProjection Role = "per_layer_projection"
	PerLayerNorm       Role = "per_layer_norm"
)

// RoleOther is the role of a tensor that the tables do not know.
const RoleOther Role = "other"

// NoLayer is the layer of what belongs to the whole model.
const NoLayer = -1

// modelNames are mlx_lm's names of what is outside the layers, without the
// prefix that a family has.
var modelNames = map[Role]string{
	EmbedTokens:            "model.embed_tokens",
	FinalNorm:              "model.norm",
	LMHead:                 "lm_head",
	PerLayerEmbedTokens:    "model.embed_tokens_per_layer",
	PerLayerModelProject:   "model.per_layer_model_projection",
	PerLayerProjectionNorm: "model.per_layer_projection_norm",
}

// layerNames are mlx_lm's names within a layer.
var layerNames = map[Role]string{
	InputNorm:       "input_layernorm",
	PostAttnNorm:    "post_attention_layernorm",
	PreMLPNorm:      "pre_feedforward_layernorm",
	PostMLPNorm:     "post_feedforward_layernorm",
	PostDenseNorm:   "post_feedforward_layernorm_1",
	PreExpertsNorm:  "pre_feedforward_layernorm_2",
	PostExpertsNorm: "post_feedforward_layernorm_2",
	LayerScalar:     "layer_scalar",

	AttnQ:     "self_attn.q_proj",
	AttnK:     "self_attn.k_proj",
	AttnV:     "self_attn.v_proj",
	AttnO:     "self_attn.o_proj",
	AttnQNorm: "self_attn.q_norm",
	AttnKNorm: "self_attn.k_norm",

	LinearAttnQKV:    "linear_attn.in_proj_qkv",
	LinearAttnZ:      "linear_attn.in_proj_z",
	LinearAttnB:      "linear_attn.in_proj_b",
	LinearAttnA:      "linear_attn.in_proj_a",
	LinearAttnConv:   "linear_attn.conv1d",
	LinearAttnALog:   "linear_attn.A_log",
	LinearAttnDtBias: "linear_attn.dt_bias",
	LinearAttnNorm:   "linear_attn.norm",
	LinearAttnOut:    "linear_attn.out_proj",

	MLPGate: "mlp.gate_proj",
	MLPUp:   "mlp.up_proj",
	MLPDown: "mlp.down_proj",

	Router:        "mlp.gate",
	ExpertsGate:   "mlp.switch_mlp.gate_proj",
	ExpertsUp:     "mlp.switch_mlp.up_proj",
	ExpertsDown:   "mlp.switch_mlp.down_proj",
	ExpertsGateUp: "mlp.experts.gate_up_proj",

	SharedExpertGate:   "mlp.shared_expert.gate_proj",
	SharedExpertUp:     "mlp.shared_expert.up_proj",
	SharedExpertDown:   "mlp.shared_expert.down_proj",
	SharedExpertRouter: "mlp.shared_expert_gate",

	PerLayerGate:       "per_layer_input_gate",
	PerLayerProjection: "per_layer_projection",
	PerLayerNorm:       "post_per_layer_input_norm",
}

// gemma4Names are those within a layer that gemma4 has otherwise: its experts
// stand beside the MLP.
var gemma4Names = map[Role]string{
	Router:            "router.proj",
	RouterScale:       "router.scale",
	RouterExpertScale: "router.per_expert_scale",
	ExpertsGate:       "experts.switch_glu.gate_proj",
	ExpertsUp:         "experts.switch_glu.up_proj",
	ExpertsDown:       "experts.switch_glu.down_proj",
	ExpertsGateUp:     "experts.gate_up_proj",
}

// Names of published checkpoints that Sanitize gives mlx_lm's name.
var publishedRoles = map[string]Role{
	"mlp.experts.down_proj": ExpertsDown,
	"experts.down_proj":     ExpertsDown,
}

// expertRoles are one expert's modules, by their names after its number.
var expertRoles = map[string]Role{"gate_proj": ExpertGate, "up_proj": ExpertUp, "down_proj": ExpertDown}

var (
	modelRoles = inverse(modelNames)
	layerRoles = inverse(layerNames, gemma4Names)
)

func inverse(tables ...map[Role]string) map[string]Role {
	roles := map[string]Role{}
	for _, table := range tables {
		for role, name := range table {
			roles[name] = role
		}
	}
	return roles
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
// mlx_lm's names and those of published checkpoints.
func RoleOf(path string) (role Role, layer int) {
	at := placeOf(path)
	return at.role, at.layer
}

// place is where a module is asked for.
type place struct {
	role   Role
	layer  int
	expert int // whose it is, where they are stored one by one; else noExpert
}

const noExpert = -1

func placeOf(path string) place {
	rest := path
	for {
		shorter := strings.TrimPrefix(strings.TrimPrefix(rest, "language_model."), "model.")
		if shorter == rest {
			break
		}
		rest = shorter
	}
	if role, ok := modelRoles["model."+rest]; ok {
		return place{role, NoLayer, noExpert}
	}
	if role, ok := modelRoles[rest]; ok {
		return place{role, NoLayer, noExpert}
	}
	layer, module, ok := cutNumber(rest, "layers.")
	if !ok {
		return place{RoleOther, NoLayer, noExpert}
	}
	for _, roles := range []map[string]Role{layerRoles, publishedRoles} {
		if role, ok := roles[module]; ok {
			return place{role, layer, noExpert}
		}
	}
	if expert, name, ok := cutNumber(module, "mlp.experts."); ok {
		if role, ok := expertRoles[name]; ok {
			return place{role, layer, expert}
		}
	}
	return place{RoleOther, layer, noExpert}
}

// cutNumber takes prefix, number and a dot from a path.
func cutNumber(path, prefix string) (n int, rest string, ok bool) {
	path, ok = strings.CutPrefix(path, prefix)
	number, rest, _ := strings.Cut(path, ".")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 0 || strconv.Itoa(n) != number {
		return 0, "", false
	}
	return n, rest, true
}
