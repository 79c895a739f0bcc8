package ngram

import (
	"math"
	"sync"
)

const (
	costAlpha   = 0.25 // weight of a new value in a width's running mean
	plainNeeded = 2    // plain steps timed before anything is compared with them: the first may have compiled kernels
)

// CostModel learns what a forward pass of each width costs, from real steps. It belongs to a loaded model and is
// shared by its requests; safe for concurrent use. Nothing is assumed of the curve: on some backends 16 rows cost
// less than 5.
type CostModel struct {
	mu      sync.Mutex
	cells   [MaxWidth + 1]cell // by width; 1 is a plain step
	sync    cell               // a plain step that was not queued ahead
	partial cell               // extra seconds of a step with a partial acceptance (recurrent state)
	steps   int                // steps recorded

	pipelined bool // some plain steps are queued ahead; the others are then booked under sync
	rechecked int  // steps at the last recheck of plain decoding

	budget  float64 // seconds that probes may still lose
	granted bool    // the first budget was given
	probes  int
	probed  int     // steps at the last probe
	backoff int     // how often the steps between probes of known widths have doubled
	own     probing // for what is booked by no request
}

// probing is how a request probes the curve that it shares with others.
type probing struct {
	steps, most int     // between probes of known widths: at first, and after they backed off
	share       float64 // of its steps' seconds, added to the budget
}

func (c Config) probing() probing { return probing{c.ProbeSteps, c.MaxProbeSteps, c.ProbeShare} }

func newCostModel(cfg Config) *CostModel { return &CostModel{own: cfg.probing()} }

// wait is how many steps must lie between two probes of known widths. The lock is held.
func (m *CostModel) wait(p probing) int {
	wait := p.steps
	for i := 0; i < m.backoff && wait < p.most; i++ {
		wait *= 2
	}
	return min(wait, p.most)
}

// cell is a running cost that single outliers cannot move: a first pass that compiled kernels for a minute, a page
// fault, another process. The lower of the first two values, then the running mean of medians of three.
type cell struct {
	mean float64
	last [3]float64
	n    int
	step int // when it was last timed
}

func (c *cell) add(v float64, step int) {
	c.last[c.n%3] = v
	c.n++
	c.step = step
	switch {
	case c.n == 1:
		c.mean = v
	case c.n == 2:
		c.mean = min(c.last[0], c.last[1])
	case c.n == 3:
		c.mean = median(c.last)
	default:
		c.mean += costAlpha * (median(c.last) - c.mean)
	}
}

func median(v [3]float64) float64 {
	return max(min(v[0], v[1]), min(max(v[0], v[1]), v[2]))
}

// usable tells whether seconds can be a measurement.
func usable(seconds float64) bool { return seconds > 0 && !math.IsInf(seconds, 0) }

// Record books a step of width rows. Callers other than a Speculator may book what they happen to time, the short
// rest of a prompt for instance. Widths beyond MaxWidth and seconds that measure nothing are ignored.
func (m *CostModel) Record(width int, seconds float64) { m.record(width, seconds, m.own) }

func (m *CostModel) record(width int, seconds float64, p probing) {
	if width < 1 || width > MaxWidth || !usable(seconds) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tick(seconds, p)
	m.cells[width].add(seconds, m.steps)
	if width == 1 && !m.granted && m.cells[1].n >= plainNeeded {
		m.granted = true
		m.budget += 3 * m.cells[1].mean
	}
}

// recordPlain books a plain step. queued says that it was queued before the step before it was read.
func (m *CostModel) recordPlain(seconds float64, queued bool, p probing) {
	m.mu.Lock()
	lone := m.pipelined && !queued
	m.mu.Unlock()
	if !lone {
		m.record(1, seconds, p)
		return
	}
	if !usable(seconds) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tick(seconds, p)
	m.sync.add(seconds, m.steps)
}

// pipeline notes that the caller queues plain steps ahead. What was booked as plain before was not queued.
func (m *CostModel) pipeline() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.pipelined {
		m.pipelined = true
		m.sync, m.cells[1] = m.cells[1], cell{}
	}
}

// recordPartial books a step of width rows after which accepted tokens had to be computed again. What it took beyond
// the width's cost is learned as the price of a partial acceptance; until that is known the price is taken to be
// guess plain steps.
func (m *CostModel) recordPartial(width int, seconds, guess float64, p probing) {
	if width < 1 || width > MaxWidth || !usable(seconds) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tick(seconds, p)
	if c := &m.cells[width]; c.n > 1 {
		m.partial.add(max(seconds-c.mean, 0), m.steps)
		return
	}
	// The width itself is hardly known: this step tells of it, not of the price.
	m.cells[width].add(max(seconds-m.price(guess), seconds/2), m.steps)
}

// price is what a partial acceptance costs.
func (m *CostModel) price(guess float64) float64 {
	if m.partial.n > 0 {
		return m.partial.mean
	}
	return guess * m.cells[1].mean
}

func (m *CostModel) tick(seconds float64, p probing) {
	m.steps++
	m.budget += p.share * min(seconds, 2*max(m.cells[1].mean, m.sync.mean)*MaxWidth)
}

// claim takes the right to a probe that is expected to lose regret seconds against the best known option. That is
// charged, not what it really took: a first pass may compile kernels for a minute, which would have come sooner or
// later. Unknown widths need only the budget; checks of known ones keep to intervals too, each twice the last.
func (m *CostModel) claim(regret float64, unknown bool, p probing) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if regret > m.budget || !unknown && m.steps-m.probed < m.wait(p) {
		return false
	}
	m.budget -= regret
	m.probes++
	m.probed = m.steps
	if !unknown && m.wait(p) < p.most {
		m.backoff++
	}
	return true
}

// repricePlain makes the next plain steps' times a new price; until then the old one stands.
func (m *CostModel) repricePlain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cells[1] = cell{mean: m.cells[1].mean, step: m.cells[1].step}
}

// recheck takes the right to a plain step where drafts pay, because plain steps were last timed long ago. Such steps
// keep their distance even if none of them can be timed.
func (m *CostModel) recheck(p probing) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.steps-max(m.cells[1].step, m.rechecked) < p.most {
		return false
	}
	m.rechecked = m.steps
	return true
}

// Curve is a copy of what is known of the costs at one moment.
type Curve struct {
	seconds [MaxWidth + 1]float64
	samples [MaxWidth + 1]int
	age     [MaxWidth + 1]int // steps since last timed
	trusted [MaxWidth + 1]bool
	sync    float64 // 0: not known
	base    float64 // what a pass of one row costs where nothing is queued ahead, as with wider ones
	partial float64 // seconds; 0 may be measured
	priced  bool    // partial is known
	due     bool    // known widths may be probed, if the budget allows it
	budget  float64
	wait    int // steps between probes at present
}

func (m *CostModel) read(c *Curve, p probing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.cells {
		c.seconds[w], c.samples[w], c.age[w] = m.cells[w].mean, m.cells[w].n, m.steps-m.cells[w].step
	}
	c.sync, c.partial, c.priced = m.sync.mean, m.partial.mean, m.partial.n > 0
	c.base = c.seconds[1]
	if m.sync.n > 1 { // the first may have compiled kernels
		c.base = max(c.base, c.sync)
	}
	c.wait = m.wait(p)
	c.due, c.budget = m.steps-m.probed >= c.wait, m.budget
	c.judge()
}

// Curve returns what is known now.
func (m *CostModel) Curve() Curve {
	var c Curve
	m.read(&c, m.own)
	return c
}

// CostPoint is one width's learned cost.
type CostPoint struct {
	Width   int     `json:"width"`
	Seconds float64 `json:"seconds"`
	Samples int     `json:"samples"`
}

// Points lists the widths that were timed.
func (c *Curve) Points() []CostPoint {
	points := []CostPoint{}
	for w := 1; w <= MaxWidth; w++ {
		if c.samples[w] > 0 {
			points = append(points, CostPoint{w, c.seconds[w], c.samples[w]})
		}
	}
	return points
}
