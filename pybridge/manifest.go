package pybridge

import (
	"context"

	"axlm/gocore/engine"
	"axlm/gocore/weights"
)

// Manifest begins to describe the model folder at path, and returns the job's
// handle. Its result is JSON: {"file", "note", "written", "manifest"}. A manifest
// that the folder has is checked; one that is absent or out of date, which note
// says, is made, and with write put into the folder. Tensors that are not what
// the family asks for are an error. It reads headers alone.
func Manifest(path string, write bool) (int, error) {
	return call(func() (int, error) {
		e, err := running()
		if err != nil {
			return 0, err
		}
		return begin(func(context.Context) (outcome, error) { return described(manifest(e, path, write)) }), nil
	})
}

func manifest(e *engine.Engine, path string, write bool) (map[string]any, error) {
	folder, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	found, note, err := weights.Current(folder)
	if err != nil {
		return nil, err
	}
	if err := e.CheckTensors(folder, found); err != nil {
		return nil, err
	}
	written := write && note != ""
	if written {
		if err := found.Write(folder.Dir); err != nil {
			return nil, err
		}
	}
	return map[string]any{"file": weights.ManifestFile, "note": note, "written": written, "manifest": found}, nil
}
