"""Computes the cases on stdin, a JSON array, with scipy and statsmodels, and prints for each a JSON object of its figures."""

import json
import multiprocessing
import sys

import numpy as np
from scipy import integrate, optimize, stats
from scipy.special import comb
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint


def clustered(y, clusters):
    """Standard error and degrees of freedom of the mean."""
    names, groups = np.unique(clusters, return_inverse=True)
    if len(names) < 2:
        return None, 0
    fit = OLS(y, np.ones(len(y))).fit(cov_type="cluster", cov_kwds={"groups": groups, "use_correction": True})
    return float(fit.bse[0]), len(names) - 1


def effective(y, clusters):
    """How many evaluations count (Korn and Graubard), None if that is not known."""
    names, groups, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    if len(names) == len(y):
        return len(y)
    if len(names) < 2:
        return None
    equal = sizes.sum() ** 2 / (sizes**2).sum()
    if np.ptp(y) < 1e-12:
        return equal
    df = max(equal - 1, 0.5)
    sums = np.bincount(groups, y - y.mean())
    square = max((sums**2).sum() / len(y) ** 2 * equal / df, 1e-300)
    return min(len(y), y.var(ddof=1) / square * (stats.norm.ppf(0.975) / stats.t.ppf(0.975, df)) ** 2)


def upper(y, shape):
    """The 97.5 % quantile of the mean of y and a 1 with weights of a Dirichlet distribution, by the formula of Gil-Pelaez."""
    values, counts = np.unique(np.append(y, 1.0), return_counts=True)
    if values[0] == 1:
        return 1.0
    shapes = counts * (shape / len(y))
    shapes[-1] += 1 - shape / len(y)

    def above(q):
        rates = values - q
        scale = 1 / np.sqrt((shapes * rates**2).sum())

        def integrand(u):
            t = u * scale
            return np.sin((shapes * np.arctan(rates * t)).sum()) / u * np.exp(-(shapes * np.log1p((rates * t) ** 2)).sum() / 2)

        parts = [integrate.quad(integrand, *ends, limit=500, epsabs=1e-10)[0] for ends in ((0, 10), (10, np.inf))]
        return 0.5 + sum(parts) / np.pi

    return optimize.brentq(lambda q: above(q) - 0.025, values[0] + 1e-12, 1 - 1e-12, xtol=1e-9)


def bounded(y, clusters):
    """Gaffke's interval of the mean of values from 0 to 1."""
    shape = effective(y, clusters)
    return None if shape is None else (1 - upper(1 - y, shape), upper(y, shape))


def estimate(y, clusters):
    se, df = clustered(y, clusters)
    out = {"mean": y.mean(), "standardError": se}
    if ends := bounded(y, clusters):
        out["low"], out["high"] = ends
    if se is not None and se > 1e-12 and not np.isin(y, [0, 1]).all():
        low, high = stats.t.interval(0.95, df, loc=y.mean(), scale=se)
        out["lowByT"], out["highByT"] = max(0, low), min(1, high)
    return out


def splitmix(seed, n):
    with np.errstate(over="ignore"):
        x = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def difference(a, b, clusters, resamples, seed):
    d = b - a
    se, df = clustered(d, clusters)
    out = {"delta": d.mean(), "deltaError": se}
    single = len(set(clusters)) == len(d)
    order = list(dict.fromkeys(clusters))
    sums = np.array([d[np.array(clusters) == c].sum() for c in order])
    sizes = np.array([(np.array(clusters) == c).sum() for c in order])
    flips = sums[np.abs(sums) > 1e-12]
    if 1 < len(flips) <= 10:
        out["signFlipP"] = stats.permutation_test((flips,), lambda x, axis: x.sum(axis=axis), permutation_type="samples",
                                                  vectorized=True, n_resamples=np.inf).pvalue
    binary = np.isin(a, [0, 1]).all() and np.isin(b, [0, 1]).all()
    flat = se is not None and se < 1e-9
    if se is not None and se > 1e-9:
        out["tP"] = stats.ttest_rel(b, a).pvalue if single else 2 * stats.t.sf(abs(d.mean() / se), df)
    if se is not None:
        mde = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * se
        out["mde"] = None if flat or mde > 1 else mde
    if np.ptp(a) > 0 and np.ptp(b) > 0:
        out["correlation"] = stats.pearsonr(a, b).statistic
    if binary and single:
        worse, better = int((d < 0).sum()), int((d > 0).sum())
        table = [[0, worse], [better, 0]]
        out["mcnemarExact"] = mcnemar(table, exact=True).pvalue if worse + better else 1.0
        mid = out["mcnemarExact"] - stats.binom.pmf(min(worse, better), worse + better, 0.5)
        out["mcnemarMidP"] = 1.0 if worse == better else mid
    if binary and (single or se is not None):
        # Bonett and Price: a cluster of mean size became worse, and one better, beside those that there are
        size = len(d) / len(order)
        sums2, sizes2 = np.append(sums, [-size, size]), np.append(sizes, [size, size])
        middle = sums2.sum() / sizes2.sum()
        scale = np.linalg.norm(sums2 - sizes2 * middle) / sizes2.sum()
        low, high = (stats.norm.interval(0.95, middle, scale) if single else stats.t.interval(0.95, df, middle, scale))
        out["deltaLow"], out["deltaHigh"] = max(-1, low), min(1, high)
    elif not binary and (ends := bounded((d + 1) / 2, clusters)):
        out["deltaLow"], out["deltaHigh"] = 2 * ends[0] - 1, 2 * ends[1] - 1
    if len(order) > 1:
        index = ((splitmix(seed, resamples * len(order)) >> np.uint64(32)) * np.uint64(len(order)) >> np.uint64(32)).astype(int).reshape(resamples, -1)
        means = sums[index].sum(axis=1) / sizes[index].sum(axis=1)
        out["bootstrapLow"], out["bootstrapHigh"] = np.quantile(means, [0.025, 0.975])
    return out


def epochs(groups):
    """What the components of variance come to: the F statistic, and the mean square within."""
    out = {"within": np.mean([np.var(g, ddof=1) for g in groups])}
    f = stats.f_oneway(*groups).statistic
    return out | {"f": f} if f > 1 + 1e-9 else out  # below 1 the variance between evaluations is 0


def pass_k(attempts, k):
    at = np.array([1 - comb(n - c, k, exact=True) / comb(n, k, exact=True) for n, c in attempts])
    hat = np.array([stats.hypergeom.pmf(k, n, c, k) for n, c in attempts])
    out = {"passAtK": at.mean(), "passHatK": hat.mean()}
    if len(attempts) > 1:
        out |= {"passAtKError": stats.sem(at), "passHatKError": stats.sem(hat)}
    return out


def gate(n, least, p):
    counts = np.arange(n + 1)
    mass = stats.binom.pmf(counts, n, p)
    high = proportion_confint(counts, n, method="beta")[1]
    return {"pointFails": mass[counts / n < least - 1e-9].sum(), "intervalFails": mass[high < least - 1e-9].sum()}


def figures(case):
    a, b, clusters = np.array(case["a"]), np.array(case["b"]), case["clusters"]
    out = estimate(a, clusters) | difference(a, b, clusters, case["resamples"], case["seed"]) | epochs(case["epochs"])
    out |= pass_k(case["attempts"], case["k"]) | gate(case["n"], case["least"], case["p"])
    out |= {f"holm{i}": p for i, p in enumerate(multipletests(case["pValues"], method="holm")[1])}
    return {k: None if v is None else float(v) for k, v in out.items()}


if __name__ == "__main__":
    with multiprocessing.Pool() as pool:
        json.dump(pool.map(figures, json.load(sys.stdin)), sys.stdout)
