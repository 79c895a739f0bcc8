// Package models holds one file a family: its config, which weights it takes,
// its forward pass. Names of config keys are the checkpoints' own; weights are
// asked for by role.
package models

import (
	"sort"
	"strings"

	"axlm/gocore/errs"
	"axlm/gocore/kvcache"
	"axlm/gocore/nn"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// Model is a loaded family.
type Model interface {
	// VocabSize counts the columns of the logits.
	VocabSize() int
	// Layers counts the transformer layers.
	Layers() int
	// NewCache makes the empty state of one request.
	NewCache(o CacheOptions) *kvcache.Cache
	// Forward appends the input's tokens to their caches and returns the logits
	// that are wanted, [B, n, vocab]. If none are it returns what need not be
	// evaluated: the caches' arrays are all that a prefill wants.
	Forward(s *mlxc.Scope, in Input) mlxc.Array
}

// CacheOptions say how a request's state is kept.
type CacheOptions struct {
	// PadViews makes attention of several rows read keys in multiples of
	// kvcache.Step; see kvcache.NewFull.
	PadViews bool
	// MaxSize bounds the rows of layers that attend to all tokens, 0 for no
	// bound; the first Keep tokens stay.
	MaxSize, Keep int
}

// builder makes a family from a folder's config and weights.
type builder func(f *weights.Folder, st *nn.Store) (Model, error)

var families = map[string]builder{
	"gemma3":      newGemma3,
	"gemma3_text": newGemma3,
	"gemma4":      newGemma4,
	"gemma4_text": newGemma4,
	"llama":       newLlama,
	"qwen2":       newQwen2,
	"qwen3":       newQwen3,
	"qwen3_5":     newQwen35,
	"qwen3_5_moe": newQwen35,
	"qwen3_moe":   newQwen3MoE,
}

// Families lists the model types that the core has, sorted.
func Families() []string {
	names := make([]string, 0, len(families))
	for name := range families {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Check says whether the folder's family is one that the core has.
func Check(f *weights.Folder) error {
	if _, ok := families[weights.Family(f.ModelType)]; !ok {
		return errs.UnknownFamily("config.json: model_type %q is not supported by the core, which has %s", f.ModelType, strings.Join(Families(), ", "))
	}
	return nil
}

// Build makes the folder's model from the store's arrays.
func Build(f *weights.Folder, st *nn.Store) (Model, error) {
	if err := Check(f); err != nil {
		return nil, err
	}
	if err := st.Err(); err != nil {
		return nil, err
	}
	return families[weights.Family(f.ModelType)](f, st)
}
