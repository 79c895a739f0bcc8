package pybridge

// Ask lets the core work on a request's next token without waiting for it. See
// engine.Request.Ask.
func Ask(request int) (int, error) {
	return call(func() (int, error) {
		r, err := get(bridge.requests, "request", request)
		if err != nil {
			return 0, err
		}
		return 0, r.Request.Ask()
	})
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
