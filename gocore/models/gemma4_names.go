package models

import (
	"strconv"
	"strings"

	"axlm/gocore/weights"
)

// otherModalities are parts of a gemma4 model that text does not need.
var otherModalities = []string{"vision_tower", "multi_modal_projector", "audio_tower", "embed_audio", "embed_vision", "vision_embedder"}

// unusedParts are parts of names that no module of the text model has: frequencies
// that converters leave behind, and the bounds of quantised activations.
var unusedParts = []string{"self_attn.rotary_emb", "input_max", "input_min", "output_max", "output_min"}

// gemma4Names maps the published names, and those that mlx_lm writes, to the
// text model's; false drops a tensor.
func gemma4Names(d *weights.Description) func(name string) (string, bool) {
	own := d.Dimensions.Layers
	if d.KVSharing != nil {
		own -= d.KVSharing.SharedLayers
	}
	return func(name string) (string, bool) {
		if d.Family == "gemma4" {
			rest, published := strings.CutPrefix(name, "model.")
			if hasAnyPrefix(rest, otherModalities) {
				return "", false
			}
			if name = rest; published && strings.HasPrefix(rest, "language_model.") {
				name = strings.Replace(rest, "language_model.", "language_model.model.", 1)
			}
		}
		if containsAny(name, unusedParts) || sharedKeyValue(name, own) {
			return "", false
		}
		if at, ok := strings.CutSuffix(name, ".experts.down_proj"); ok {
			name = at + ".experts.switch_glu.down_proj.weight"
		}
		return name, true
	}
}

// sharedKeyValue tells the keys' and values' weights of layers from own on,
// which attend to those of earlier layers.
func sharedKeyValue(name string, own int) bool {
	if !containsAny(name, []string{".self_attn.k_proj", ".self_attn.v_proj", ".self_attn.k_norm"}) {
		return false
	}
	_, rest, _ := strings.Cut(name, "layers.")
	number, _, _ := strings.Cut(rest, ".")
	layer, err := strconv.Atoi(number)
	return err == nil && layer >= own
}

func hasAnyPrefix(name string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func containsAny(name string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}
