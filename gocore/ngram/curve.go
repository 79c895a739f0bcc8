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

// at is the cost of a known width, as compared with that of wider passes: none of them is queued ahead.
func (c *Curve) at(w int) float64 {
	if w == 1 {
		return c.base
	}
	return c.seconds[w]
}

// line is the value at w of the line through the costs of a and b.
func (c *Curve) line(a, b, w int) float64 {
	return c.at(a) + (c.at(b)-c.at(a))*float64(w-a)/float64(b-a)
}

// steepness is 0 for a curve that is flat up to the known width w, 1 for one that is steep.
func (c *Curve) steepness(w int) float64 {
	perRow := (c.at(w) - c.base) / float64(w-1) / c.seconds[1]
	return min(max((perRow-flatSlope)/(steepSlope-flatSlope), 0), 1)
}

// predict is the expected cost of width w > 1: measured, interpolated between measured widths, or the last slope
// carried on to the next power of two. 0: no guess.
func (c *Curve) predict(w int) float64 {
	if c.known(w) {
		return c.seconds[w]
	}
	a, b := c.neighbours(w)
	switch {
	case b != 0:
		return c.line(a, b, w)
	case w > rung(a):
		return 0
	case a == 1:
		return c.base + c.seconds[1] // linear until something else is seen
	}
	before, _ := c.neighbours(a)
	slope := (c.at(a) - c.at(before)) / float64(a-before)
	return c.at(a) + max(slope, 0)*float64(w-a)
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
		fair := c.line(a, b, w)
		least = fair - (1-c.steepness(b))*(fair-min(c.at(a), c.at(b)))/2
	case w > rung(a):
		return 0
	case a == 1:
		least = c.base
	default:
		// From falling back to nearly a plain step (another kernel) to rising on as before.
		rise := (c.at(a) - c.base) / float64(a-1)
		least = c.base + rise + c.steepness(a)*rise*float64(w-2)
	}
	if c.samples[w] > 1 {
		return max(least, drift*c.seconds[w])
	}
	return least
}
