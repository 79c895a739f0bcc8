package engine

import (
	"testing"
	"time"
)

func TestSecondsOfAPass(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	cases := map[string]struct {
		timing       timing
		waiting, now int // ms after the start
		want         float64
	}{
		"the device made us wait":                 {timing{}, 2, 10, 0.010},
		"it did although the reader paused":       {timing{paused: 5 * time.Millisecond}, 6, 10, 0.010},
		"queuing took all the time":               {timing{}, 10, 10, 0.010},
		"the reader's pause was none of the cost": {timing{paused: 4 * time.Millisecond}, 10, 10, 0.006},
		"another request ran in between":          {timing{shared: true}, 2, 10, 0},
	}
	for name, c := range cases {
		c.timing.started = start
		if got := c.timing.seconds(at(c.now), at(c.waiting)); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%s: %v s, want %v", name, got, c.want)
		}
	}
}
