package ngram

// What a curve says of widths that were never timed. Two answers serve two ends:
//
// predict is a fair guess. A width whose guess beats everything known is simply used, and then it is known.
//
// optimistic is the least that it might plausibly cost. Curves bend down where another kernel takes over (4-bit on
// CUDA: 20 ms at 6 rows, 15 at 8), which no interpolation can foresee; a width that would win at this cost is worth a
// probe. Where costs rise steeply with the first rows (a CPU doubles at 2) wider passes are taken to rise on, because
// finding out is dear there: probing 8 rows would cost 8 plain steps.

const (
	flatSlope  = 0.25 // rise per row, in plain steps, up to which wider passes may well cost no more
	steepSlope = 0.5  // and from which on they are taken to go on rising
	drift      = 0.7  // what may have become of a known cost
	surprise   = 1.5  // times the predicted cost: not believed at once
)

// known tells whether width w was timed, and the timing is believed.
func (c *Curve) known(w int) bool { return c.trusted[w] }

// judge marks the widths to believe. A single pass that took much longer than its neighbours let expect compiled
// kernels, most likely, and tells nothing; a second one will.
func (c *Curve) judge() {
	for w := range c.samples {
		c.trusted[w] = c.samples[w] > 1
	}
	c.trusted[1] = c.samples[1] > 0
	for w := 2; w <= MaxWidth && c.trusted[1]; w++ {
		if c.samples[w] != 1 {
			continue
		}
		fair := c.predict(w)
		if fair == 0 {
			fair = float64(w) * c.seconds[1]
		}
		c.trusted[w] = c.seconds[w] <= surprise*fair
	}
}

// neighbours are the nearest known widths below and above w; above is 0 if there is none. Width 1 must be known.
func (c *Curve) neighbours(w int) (below, above int) {
	for below = w - 1; below > 1 && !c.known(below); below-- {
	}
	for above = w + 1; above <= MaxWidth; above++ {
		if c.known(above) {
			return below, above
		}
	}
	return below, 0
}

// rung is the next width to try beyond a: kernels change at powers of two.
func rung(a int) int {
	w := 2
	for w <= a {
		w *= 2
	}
	return w
}

// between is the width to try between a and b: a power of two if there is one, or the middle, which says most about
// the others.
func between(a, b int) int {
	if w := rung(a); w < b {
		return w
	}
	return (a + b) / 2
}

// predict is the expected cost of width w: measured, interpolated between measured widths, or the last slope carried
// on to the next power of two. 0: no guess.
func (c *Curve) predict(w int) float64 {
	if c.known(w) {
		return c.seconds[w]
	}
	a, b := c.neighbours(w)
	if b != 0 {
		return c.seconds[a] + (c.seconds[b]-c.seconds[a])*float64(w-a)/float64(b-a)
	}
	if w > rung(a) {
		return 0
	}
	if a == 1 {
		return 2 * c.seconds[1] // linear until something else is seen
	}
	before, _ := c.neighbours(a)
	slope := (c.seconds[a] - c.seconds[before]) / float64(a-before)
	return c.seconds[a] + max(slope, 0)*float64(w-a)
}

// unsure tells whether width w is worth timing (again): it is unknown; or, when probes of known widths are due, it was
// timed once only, when kernels may have been compiled, or not since the last such probe.
func (c *Curve) unsure(w int) bool {
	return !c.known(w) || c.due && (c.samples[w] < 2 || c.age[w] >= c.wait)
}

// optimistic is the least that an unsure width w might cost. 0: out of reach, narrower ones come first.
func (c *Curve) optimistic(w int) float64 {
	a, b := c.neighbours(w)
	var least float64
	switch {
	case b != 0:
		fair := c.seconds[a] + (c.seconds[b]-c.seconds[a])*float64(w-a)/float64(b-a)
		least = (fair + min(c.seconds[a], c.seconds[b])) / 2
	case w > rung(a):
		return 0
	case a == 1:
		least = c.seconds[1]
	default:
		rise := (c.seconds[a] - c.seconds[1]) / float64(a-1) // per row
		carry := min(max((rise/c.seconds[1]-flatSlope)/(steepSlope-flatSlope), 0), 1)
		// From falling back to nearly a plain step (another kernel) to rising on as before.
		least = c.seconds[1] + rise + carry*rise*float64(w-2)
	}
	if c.samples[w] > 1 {
		return max(least, drift*c.seconds[w])
	}
	return least
}
