package pybridge

// AwaitPrompt asks for a request's next token without taking it, waits up to waitMs
// until count tokens of its prompt are processed or the token is there, and
// returns how many are processed. See engine.Request.Await.
func AwaitPrompt(request int, count int, waitMs int) (int, error) {
	return call(func() (int, error) {
		r, err := get(bridge.requests, "request", request)
		if err != nil {
			return 0, err
		}
		return r.Request.Await(count, milliseconds(waitMs))
	})
}
