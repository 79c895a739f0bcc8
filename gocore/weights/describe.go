package weights

import (
	"slices"

	"axlm/gocore/errs"
)

// Kinds of layers.
const (
	FullAttention    = "full_attention"
	SlidingAttention = "sliding_attention"
	LinearAttention  = "linear_attention"
)

// Description is the model as config.json and the family's defaults give it.
type Description struct {
	Family          string          `json:"family"`
	ModelType       string          `json:"model_type"`
	Dimensions      Dimensions      `json:"dimensions"`
	Rope            map[string]Rope `json:"rope"` // by kind of layer
	LayerTypes      []string        `json:"layer_types"`
	KVSharing       *KVSharing      `json:"kv_sharing,omitempty"`
	LinearAttention *LinearDims     `json:"linear_attention,omitempty"`
	MoE             *MoE            `json:"moe,omitempty"`
	Quantization    *Quant          `json:"quantization,omitempty"` // the default; each tensor has its own
	TiedEmbeddings  bool            `json:"tied_embeddings"`
	EndTokens       []int           `json:"end_tokens"`
}

// Dimensions are the sizes, under config.json's names.
type Dimensions struct {
	Vocab         int     `json:"vocab_size"`
	Hidden        int     `json:"hidden_size"`
	Intermediate  int     `json:"intermediate_size"`
	Layers        int     `json:"num_hidden_layers"`
	Heads         int     `json:"num_attention_heads"`
	KVHeads       int     `json:"num_key_value_heads"`
	HeadDim       int     `json:"head_dim"`
	GlobalKVHeads int     `json:"num_global_key_value_heads,omitempty"` // full layers, where they differ
	GlobalHeadDim int     `json:"global_head_dim,omitempty"`
	Window        int     `json:"sliding_window,omitempty"` // tokens
	MaxPositions  int     `json:"max_position_embeddings,omitempty"`
	PerLayer      int     `json:"hidden_size_per_layer_input,omitempty"`
	PerLayerVocab int     `json:"vocab_size_per_layer_input,omitempty"`
	NormEps       float64 `json:"rms_norm_eps"`
	FinalSoftcap  float64 `json:"final_logit_softcapping,omitempty"`
	KeyIsValue    bool    `json:"attention_k_eq_v,omitempty"`
}

// Rope is the rotary embedding of one kind of layer.
type Rope struct {
	Type    string         `json:"type"`
	Theta   float64        `json:"theta"`
	Dims    int            `json:"dims"`              // rotated features of a head
	Scaling map[string]any `json:"scaling,omitempty"` // config.json's object
}

// KVSharing says which layer's keys and values each layer attends to: its own
// number, or an earlier one's.
type KVSharing struct {
	SharedLayers int   `json:"shared_layers"`
	Sources      []int `json:"sources"`
}

// OwnKeyValues is how many layers, the first ones, have keys and values of
// their own.
func (d *Description) OwnKeyValues() int {
	if d.KVSharing == nil {
		return d.Dimensions.Layers
	}
	return d.Dimensions.Layers - d.KVSharing.SharedLayers
}

// LinearDims are the sizes of gated delta layers.
type LinearDims struct {
	KeyHeads   int `json:"key_heads"`
	ValueHeads int `json:"value_heads"`
	KeyDim     int `json:"key_head_dim"`
	ValueDim   int `json:"value_head_dim"`
	ConvKernel int `json:"conv_kernel"`
}

// MoE are the sizes of the expert layers, and which layers those are.
type MoE struct {
	Experts            int   `json:"experts"`
	PerToken           int   `json:"experts_per_token"`
	Intermediate       int   `json:"intermediate_size"`
	SharedIntermediate int   `json:"shared_intermediate_size,omitempty"`
	Normalized         bool  `json:"normalized"` // the chosen experts' weights sum to 1
	Layers             []int `json:"layers"`
}

// Describe reads the description. Sizes that contradict each other, unknown
// kinds of layers and shared layers without a source are ValueErrors that name
// the key.
func (f *Folder) Describe() (*Description, error) {
	c, err := f.parameters()
	if err != nil {
		return nil, err
	}
	d := &Description{Family: Family(f.ModelType), ModelType: f.ModelType, Quantization: f.quant.top}
	if d.Dimensions, err = f.dimensions(c); err != nil {
		return nil, err
	}
	r := c.Reader()
	d.LayerTypes = layerTypes(d.Family, d.Dimensions.Layers, r)
	r.Fail(checkWindow(c, d))
	d.Rope = ropes(d, r)
	d.MoE = moe(d, r)
	if slices.Contains(d.LayerTypes, LinearAttention) {
		d.LinearAttention = linearDims(r)
	}
	if r.Err() == nil {
		d.KVSharing, err = kvSharing(c, d.LayerTypes)
		r.Fail(err)
	}
	d.TiedEmbeddings = f.tied(d.Family, r)
	if r.Err() != nil {
		return nil, r.Err()
	}
	d.EndTokens, err = f.EndTokens()
	return d, err
}

func (f *Folder) dimensions(c *Config) (Dimensions, error) {
	layers, err := f.Layers(c, 0)
	if err != nil {
		return Dimensions{}, err
	}
	r := c.Reader()
	d := Dimensions{
		Layers: layers, Vocab: r.Count("vocab_size"), Hidden: r.Count("hidden_size"),
		Intermediate: r.Count("intermediate_size"), Heads: r.Count("num_attention_heads"),
		GlobalKVHeads: r.CountOr("num_global_key_value_heads", 0), GlobalHeadDim: r.IntOr("global_head_dim", 0),
		MaxPositions: r.CountOr("max_position_embeddings", 0), PerLayer: r.IntOr("hidden_size_per_layer_input", 0),
		NormEps: r.Float("rms_norm_eps"), FinalSoftcap: r.FloatOr("final_logit_softcapping", 0),
		KeyIsValue: r.BoolOr("attention_k_eq_v", false),
	}
	if d.PerLayer > 0 {
		d.PerLayerVocab = r.Count("vocab_size_per_layer_input")
	}
	d.KVHeads = r.CountOr("num_key_value_heads", d.Heads)
	if r.Err() != nil {
		return d, r.Err()
	}
	d.HeadDim = r.CountOr("head_dim", d.Hidden/d.Heads)
	switch {
	case r.Err() != nil:
		return d, r.Err()
	case d.HeadDim == 0:
		return d, errs.Value("%s: %d heads do not fit hidden_size %d", c.where("num_attention_heads"), d.Heads, d.Hidden)
	case d.Heads%d.KVHeads != 0:
		return d, errs.Value("%s: %d does not divide num_attention_heads %d", c.where("num_key_value_heads"), d.KVHeads, d.Heads)
	case d.GlobalKVHeads > 0 && d.Heads%d.GlobalKVHeads != 0:
		return d, errs.Value("%s: %d does not divide num_attention_heads %d",
			c.where("num_global_key_value_heads"), d.GlobalKVHeads, d.Heads)
	}
	return d, nil
}

// layerTypes are the kinds of the n layers. qwen3_5 and gemma3 go by an
// interval, whatever layer_types says; the others that mix kinds, by
// layer_types.
func layerTypes(family string, n int, r Reader) []string {
	every, other := 1, FullAttention
	switch family {
	case "qwen3_5", "qwen3_5_moe":
		every, other = r.Count("full_attention_interval"), LinearAttention
		checkKinds(r, FullAttention, LinearAttention)
	case "gemma3", "gemma3_text":
		every, other = r.Count("sliding_window_pattern"), SlidingAttention
		checkKinds(r, FullAttention, SlidingAttention)
	case "llama", "gemma4", "gemma4_text":
		if r.Has("layer_types") {
			return listedTypes(n, r)
		}
		if family != "llama" {
			every, other = r.Count("sliding_window_pattern"), SlidingAttention
		}
	}
	if r.Err() != nil {
		return nil
	}
	types := make([]string, n)
	for i := range types {
		types[i] = other
		if (i+1)%every == 0 {
			types[i] = FullAttention
		}
	}
	return types
}

func listedTypes(n int, r Reader) []string {
	types := checkKinds(r, FullAttention, SlidingAttention)
	if r.Err() == nil && len(types) != n {
		r.Fail(errs.Value("%s: %d entries for %d layers", r.Config().where("layer_types"), len(types), n))
	}
	return types
}

// checkKinds reads layer_types, which may have no others than these. A family
// that goes by an interval checks it as well: another kind is another model.
func checkKinds(r Reader, kinds ...string) []string {
	types := r.Strings("layer_types")
	for i, kind := range types {
		if !slices.Contains(kinds, kind) {
			r.Fail(errs.Value("%s: layer %d: unknown kind %q", r.Config().where("layer_types"), i, kind))
		}
	}
	return types
}

func checkWindow(c *Config, d *Description) error {
	if !slices.Contains(d.LayerTypes, SlidingAttention) {
		return nil
	}
	window, err := c.Count("sliding_window")
	d.Dimensions.Window = window
	return err
}
