package engine

import "axlm/gocore/weights"

// Info describes a loaded model.
type Info struct {
	Path       string          `json:"path"`
	Adapter    string          `json:"adapter,omitempty"` // its folder
	ModelType  string          `json:"model_type"`
	VocabSize  int             `json:"vocab_size"`
	Layers     int             `json:"num_layers"`
	Caches     int             `json:"num_caches"` // layers that have a state
	Bytes      int             `json:"nbytes"`
	Parameters int             `json:"num_parameters"`
	Config     *weights.Config `json:"config"`
	EndTokens  []int           `json:"eos_token_ids"`
	// Description is the manifest's: dimensions, kinds of layers, sharing.
	Description weights.Description `json:"description"`
}

// Info describes the model. What config.json does not say stays empty.
func (m *Model) Info() (Info, error) {
	ends, err := m.Folder.EndTokens()
	if err != nil {
		return Info{}, err
	}
	adapter := ""
	if dir := m.adapter.Load(); dir != nil {
		adapter = *dir
	}
	return Info{
		Path: m.Folder.Dir, Adapter: adapter, ModelType: m.Folder.ModelType, VocabSize: m.vocab, Layers: m.layers, Caches: m.caches,
		Bytes: m.Bytes(), Parameters: int(m.parameters.Load()), Config: m.Folder.Config, EndTokens: ends, Description: m.manifest.Description,
	}, nil
}
