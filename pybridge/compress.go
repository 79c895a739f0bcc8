package pybridge

import (
	"axlm/gocore/promptcache"
)

// PackStart begins to compress the prompt cache file at from into a new zstd
// file at to, and returns the job's handle. It needs neither MLX nor Init.
func PackStart(from string, to string) (int, error) {
	return call(func() (int, error) { return put(bridge.packings, promptcache.StartPack(from, to)), nil })
}

// UnpackStart begins to unpack the zstd file at from into a new file at to,
// and returns the job's handle. A content of more than limit bytes is refused.
func UnpackStart(from string, to string, limit int) (int, error) {
	return call(func() (int, error) {
		return put(bridge.packings, promptcache.StartUnpack(from, to, int64(limit))), nil
	})
}

// PackWait waits up to waitMs for packing or unpacking and returns its progress
// as JSON: {"done", "total"} in bytes of the content, total being 0 until it is
// known, "ended", and with the end "sizes": {"content", "packed"}. A job that
// ended is gone after it.
func PackWait(job int, waitMs int) (string, error) {
	return call(func() (string, error) {
		j, err := get(bridge.packings, "job", job)
		if err != nil {
			return "", err
		}
		sizes, ended, err := j.Wait(milliseconds(waitMs))
		if ended {
			pop(bridge.packings, job)
			if err != nil {
				return "", err
			}
		}
		done, total := j.Progress()
		return toJSON(map[string]any{"done": done, "total": total, "ended": ended, "sizes": sizes})
	})
}

// PackCancel gives a job up and removes what it had written; one that has
// ended is left alone.
func PackCancel(job int) (int, error) {
	return call(func() (int, error) {
		if j, ok := pop(bridge.packings, job); ok {
			j.Cancel()
		}
		return 0, nil
	})
}

// CacheFileSizes checks the prompt cache file at path, packed with zstd or a
// plain safetensors file, by its headers alone, and tells its sizes as JSON:
// {"content", "packed"} in bytes.
func CacheFileSizes(path string, packed bool) (string, error) {
	return call(func() (string, error) {
		measure := promptcache.MeasurePlain
		if packed {
			measure = promptcache.Measure
		}
		sizes, err := measure(path)
		if err != nil {
			return "", err
		}
		return toJSON(sizes)
	})
}
