package pybridge

import (
	"axlm/gocore/weights"
)

// Manifest describes the model folder at path as JSON: {"file", "note",
// "written", "manifest"}. A manifest that the folder has is checked; one that
// is absent or out of date, which note says, is made, and with write put into
// the folder. Tensors that are not what the family asks for are an error. It
// reads headers alone.
func Manifest(path string, write bool) (string, error) {
	return call(func() (string, error) {
		folder, err := weights.Open(path)
		if err != nil {
			return "", err
		}
		manifest, note, err := weights.Current(folder)
		if err != nil {
			return "", err
		}
		e, err := running()
		if err != nil {
			return "", err
		}
		if err := e.CheckTensors(folder, manifest); err != nil {
			return "", err
		}
		written := write && note != ""
		if written {
			if err := manifest.Write(folder.Dir); err != nil {
				return "", err
			}
		}
		return toJSON(map[string]any{"file": weights.ManifestFile, "note": note, "written": written, "manifest": manifest})
	})
}
