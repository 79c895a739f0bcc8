package weights

import "strings"

// renaming maps a tensor's name in its file to mlx_lm's, and drops the tensor
// where it returns false. layer is the tensor's, or NoLayer.
type renaming func(name string, role Role, layer int) (string, bool)

// Sanitize gives the table the names that mlx_lm gives the family's tensors,
// and drops what the text model has no use for: the towers of models that also
// see or hear, draft heads, and what converters leave behind. Names that are
// mlx_lm's already stay.
func (f *Folder) Sanitize() error {
	rename := families[Family(f.ModelType)].rename
	if rename == nil {
		return nil
	}
	d, err := f.Describe()
	if err != nil {
		return err
	}
	of := rename(d)
	return f.Rename(func(name string) (string, bool) {
		path, _ := SplitName(name)
		role, layer := RoleOf(path)
		return of(name, role, layer)
	})
}

// decoderNames drops the frequencies of rotary embeddings, which are computed.
func decoderNames(*Description) renaming {
	return func(name string, _ Role, _ int) (string, bool) {
		return joinedDown(name), !strings.Contains(name, "self_attn.rotary_emb.inv_freq")
	}
}

// joinedDown is the name of the experts' output matrices where a published
// checkpoint holds an array that stands alone.
func joinedDown(name string) string {
	if at, ok := strings.CutSuffix(name, ".mlp.experts.down_proj"); ok {
		return at + "." + layerNames[ExpertsDown] + ".weight"
	}
	return name
}

func gemma3Names(*Description) renaming {
	return func(name string, _ Role, _ int) (string, bool) {
		return name, !hasAnyPrefix(name, []string{"vision_tower.", "multi_modal_projector."})
	}
}

// qwen35Names nests what is flat.
func qwen35Names(*Description) renaming {
	const prefix = languageModel
	return func(name string, _ Role, _ int) (string, bool) {
		name = joinedDown(name)
		switch {
		case hasAnyPrefix(name, []string{"vision_tower", "model.visual"}), strings.Contains(name, "mtp."):
			return "", false
		case strings.HasPrefix(name, "model.language_model"):
			return strings.Replace(name, "model.language_model", prefix+"model", 1), true
		case strings.HasPrefix(name, prefix):
			return name, true
		}
		return prefix + name, true
	}
}

// otherModalities are parts of a gemma4 model that text does not need.
var otherModalities = []string{"vision_tower", "multi_modal_projector", "audio_tower", "embed_audio", "embed_vision", "vision_embedder"}

// unusedParts are parts of names that no module of gemma4's text model has:
// frequencies that converters leave behind, and the bounds of quantised
// activations.
var unusedParts = []string{"self_attn.rotary_emb", "input_max", "input_min", "output_max", "output_min"}

// gemma4Rename drops the keys and values of layers that attend to those of
// earlier ones.
func gemma4Rename(d *Description) renaming {
	own := d.OwnKeyValues()
	return func(name string, role Role, layer int) (string, bool) {
		if d.Family == "gemma4" {
			rest, published := strings.CutPrefix(name, "model.")
			if hasAnyPrefix(rest, otherModalities) {
				return "", false
			}
			if name = rest; published && strings.HasPrefix(rest, "language_model.") {
				name = strings.Replace(rest, "language_model.", "language_model.model.", 1)
			}
		}
		shared := layer >= own && (role == AttnK || role == AttnV || role == AttnKNorm)
		if shared || containsAny(name, unusedParts) {
			return "", false
		}
		if at, ok := strings.CutSuffix(name, ".experts.down_proj"); ok {
			name = at + "." + gemma4Names[ExpertsDown] + ".weight"
		}
		return name, true
	}
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
