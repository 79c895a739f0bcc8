package pybridge

import (
	"encoding/binary"

	"axlm/gocore/engine"
	"axlm/gocore/errs"
)

// Ask lets the core work on the next tokens of some requests, whose handles are
// int64s, without waiting for it: all at once, so that they share passes. See
// engine.Ask.
func Ask(requests []byte) (int, error) {
	return call(func() (int, error) {
		all, err := requestsOf(requests)
		if err != nil {
			return 0, err
		}
		return 0, engine.Ask(all...)
	})
}

// Fill lets the core process some requests' prompts, each up to so many tokens,
// int64s like the handles. See engine.Fill.
func Fill(requests []byte, counts []byte) (int, error) {
	return call(func() (int, error) {
		all, err := requestsOf(requests)
		if err != nil {
			return 0, err
		}
		numbers := int64s(counts)
		if len(numbers) != len(all) {
			return 0, errs.Value("%d requests, but %d counts", len(all), len(numbers))
		}
		return 0, engine.Fill(all, numbers)
	})
}

func requestsOf(handles []byte) ([]*engine.Request, error) {
	var all []*engine.Request
	for _, handle := range int64s(handles) {
		r, err := get(bridge.requests, "request", handle)
		if err != nil {
			return nil, err
		}
		all = append(all, r.Request)
	}
	return all, nil
}

func int64s(data []byte) []int {
	all := make([]int, len(data)/8)
	for i := range all {
		all[i] = int(binary.LittleEndian.Uint64(data[8*i:]))
	}
	return all
}

// FillPrompt processes a request's prompt up to count tokens, waits for that up
// to waitMs, and returns how many are processed. See engine.Request.FillPrompt.
func FillPrompt(request int, count int, waitMs int) (int, error) {
	return call(func() (int, error) {
		r, err := get(bridge.requests, "request", request)
		if err != nil {
			return 0, err
		}
		return r.Request.FillPrompt(count, milliseconds(waitMs))
	})
}
