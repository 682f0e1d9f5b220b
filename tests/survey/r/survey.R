# Makes the files of this folder and what R's survey package says of them: Rscript survey.R (R, r-cran-survey).
# Each case stands as the call of R and, beside it, as the options of `stirred survey estimate`.
suppressMessages(library(survey))
set.seed(20261117)
RNGkind(sample.kind = "Rejection")

# ---- files

answers <- function(n) data.frame(
  y = round(rgamma(n, 2, 0.05), 1), x = rpois(n, 4) + 1, sex = sample(c("f", "m"), n, TRUE),
  job = sample(c("clerk", "cook", "none"), n, TRUE), age = sample(c("young", "old"), n, TRUE)
)
gaps <- function(v) { v[sample(length(v), length(v) %/% 8)] <- NA; v }
keep <- function(name, data) {  # R reads it back, to have the very numbers of the file
  write.csv(data, paste0(name, ".csv"), row.names = FALSE, quote = FALSE)
  read.csv(paste0(name, ".csv"))
}

n <- c(A = 14, B = 20, C = 9); N <- c(A = 90, B = 400, C = 31)
strat <- data.frame(h = rep(names(n), n))
strat <- cbind(strat, N = N[strat$h], f = (n / N)[strat$h], w = (N / n)[strat$h], answers(sum(n)))
strat$z <- gaps(strat$y); strat$v <- gaps(strat$x); strat$work <- gaps(strat$job)
strat$d <- ifelse(strat$h == "C", "none", sample(c("p", "q"), nrow(strat), TRUE))
strat$odd <- strat$w * runif(nrow(strat), 0.5, 1.5)
strat$zero <- ifelse(seq_len(nrow(strat)) %% 7 == 0, 0, strat$w)
strat$zero[strat$h == "C" & seq_len(nrow(strat)) %% 2 == 0] <- 0
strat <- keep("strat", strat)

psu <- data.frame(h = rep(1:3, c(4, 3, 5)), psu = c(1:4, 1:3, 1:5), M = rep(c(11, 7, 30), c(4, 3, 5)))
two <- do.call(rbind, lapply(seq_len(nrow(psu)), function(i) {
  size <- sample(5:14, 1); take <- sample(2:5, 1)
  cbind(psu[i, ], ssu = seq_len(take), size = size, take = take)
}))
m <- ave(two$psu, two$h, FUN = function(v) length(unique(v)))
two <- cbind(two, f1 = m / two$M, f2 = two$take / two$size, w = two$M / m * two$size / two$take)
two <- cbind(two, id = paste(two$h, two$psu, sep = "."), answers(nrow(two)))
two$z <- gaps(two$y)
two$d <- ifelse(two$h == 2, "p", sample(c("p", "q", "r"), nrow(two), TRUE))
two <- keep("two", two)

pps <- data.frame(size = round(rlnorm(30, 3, 0.6)), g = rep(1:15, each = 2))
pps$pi <- round(pmin(30 * pps$size / sum(pps$size) / 5, 1), 4)
pps <- cbind(pps, w = 1 / pps$pi, answers(30)); pps$y <- pps$y + 2 * pps$size
pps <- keep("pps", pps)

lonely <- data.frame(h = rep(1:5, c(1, 4, 3, 1, 2)), unit = c(1, 1, 2, 3, 3, 1, 2, 3, 1, 1, 2))
lonely <- cbind(lonely, M = c(8, 9, 9, 9, 9, 12, 12, 12, 1, 5, 5), answers(11))
lonely$w <- lonely$M / ave(lonely$unit, lonely$h, FUN = function(v) length(unique(v)))
lonely$d <- c("p", "p", "q", "p", "q", "q", "q", "p", "q", "q", "p")
lonely <- keep("lonely", lonely)

pairs <- data.frame(h = rep(1:4, each = 12), psu = rep(1:8, each = 6), w = rep(c(5, 8, 6.5, 12), each = 12), answers(48))
pairs$z <- gaps(pairs$y)
plain <- svydesign(ids = ~psu, strata = ~h, weights = ~w, data = pairs)
whole <- svydesign(ids = ~psu, weights = ~w, data = pairs)
made <- list(
  brr = as.svrepdesign(plain, type = "BRR"), fay = as.svrepdesign(plain, type = "Fay", fay.rho = 0.3),
  jkn = as.svrepdesign(plain, type = "JKn"), jk1 = as.svrepdesign(whole, type = "JK1"),
  boot = as.svrepdesign(plain, type = "subbootstrap", replicates = 12)
)
for (name in names(made)) {
  columns <- weights(made[[name]], "analysis")
  colnames(columns) <- sprintf("%s%02d", name, seq_len(ncol(columns)))
  pairs <- cbind(pairs, round(columns, 6))
}
pairs <- keep("pairs", pairs)

# ---- cases

said <- NULL
domain <- function(by) apply(by, 1, function(row) paste(names(by), row, sep = "=", collapse = ";"))
case <- function(file, options, object, design, kind = "total") {
  interval <- confint(object, df = degf(design))
  estimate <- as.vector(coef(object)); se <- as.vector(unlist(SE(object)))
  if (inherits(object, "svyby")) {
    by <- object[attr(object, "svyby")$margins]
    by[] <- lapply(by, as.character)
    columns <- length(estimate) / nrow(object)
    level <- rep(attr(object, "svyby")$variables, each = nrow(object))
    place <- rep(domain(by), columns)
  } else { level <- names(coef(object)); place <- "" }
  if (kind == "ratio") level <- sub(".*--ratio ([^ ]+).*", "\\1", options)
  if (kind == "table") { place <- sub("cell", "", level); level <- "" }
  rows <- data.frame(
    file = file, options = options, kind = kind, level = level, domain = place, estimate = sprintf("%.12g", estimate), se = sprintf("%.12g", se), df = degf(design),
    low = sprintf("%.12g", interval[, 1]), high = sprintf("%.12g", interval[, 2])
  )
  said <<- rbind(said, rows)
}
each <- function(file, options, design) {  # what every design is asked
  design <- update(design, cell = factor(paste0("sex=", sex, ";job=", job)))
  all <- paste(options, "--total y,x --mean y,sex,job --ratio y/x --table sex,job")
  case(file, all, svytotal(~y + x, design), design)
  case(file, all, svymean(~y + sex + job, design), design, "mean")
  case(file, all, svyratio(~y, ~x, design), design, "ratio")
  case(file, all, svytotal(~cell, design), design, "table")
  by <- paste(options, "--total y --mean x --by sex,job")
  case(file, by, svyby(~y, ~sex + job, design, svytotal), design)
  case(file, by, svyby(~x, ~sex + job, design, svymean), design, "mean")
}

designs <- list(
  list("strat", "--weights odd", svydesign(~1, weights = ~odd, data = strat)),
  list("strat", "--strata h --weights odd", svydesign(~1, strata = ~h, weights = ~odd, data = strat)),
  list("strat", "--strata h --fpc N", svydesign(~1, strata = ~h, fpc = ~N, data = strat)),
  list("strat", "--strata h --fpc f", svydesign(~1, strata = ~h, fpc = ~f, data = strat)),
  list("strat", "--strata h --fpc N --weights odd", svydesign(~1, strata = ~h, fpc = ~N, weights = ~odd, data = strat)),
  list("strat", "--strata h --weights zero", svydesign(~1, strata = ~h, weights = ~zero, data = strat)),
  list("two", "--ids psu --strata h --weights w --nest",
       svydesign(~psu, strata = ~h, weights = ~w, nest = TRUE, data = two)),
  list("two", "--ids id --weights w", svydesign(~id, weights = ~w, data = two)),
  list("two", "--ids id --strata h --fpc M --weights w", svydesign(~id, strata = ~h, fpc = ~M, weights = ~w, data = two)),
  list("two", "--ids psu,ssu --strata h --fpc M,size --nest",
       svydesign(~psu + ssu, strata = ~h, fpc = ~M + size, nest = TRUE, data = two)),
  list("two", "--ids psu,ssu --strata h --fpc f1,f2 --nest",
       svydesign(~psu + ssu, strata = ~h, fpc = ~f1 + f2, nest = TRUE, data = two)),
  list("two", "--ids psu,ssu --strata h --weights w --nest",
       svydesign(~psu + ssu, strata = ~h, weights = ~w, nest = TRUE, data = two)),
  list("pps", "--weights w", svydesign(~1, probs = ~pi, data = pps)),
  list("pps", "--ids g --weights w", svydesign(~g, weights = ~w, data = pps)),
  list("pps", "--fpc pi --pps brewer", svydesign(~1, fpc = ~pi, pps = "brewer", data = pps)),
  list("pps", "--fpc pi --pps poisson", svydesign(~1, probs = ~pi, pps = poisson_sampling(pps$pi), data = pps))
)
for (one in designs) each(one[[1]], one[[2]], one[[3]])

s <- designs[[3]][[3]]; t <- designs[[10]][[3]]
case("strat", "--strata h --fpc N --total z --na-rm", svytotal(~z, s, na.rm = TRUE), s)
case("strat", "--strata h --fpc N --mean z --na-rm", svymean(~z, s, na.rm = TRUE), s, "mean")
case("strat", "--strata h --fpc N --mean work --na-rm", svymean(~work, s, na.rm = TRUE), s, "mean")
case("strat", "--strata h --fpc N --ratio z/v --na-rm", svyratio(~z, ~v, s, na.rm = TRUE), s, "ratio")
case("strat", "--strata h --fpc N --mean z --by d --na-rm", svyby(~z, ~d, s, svymean, na.rm = TRUE), s, "mean")
case("two", "--ids psu,ssu --strata h --fpc M,size --nest --mean z --by d --na-rm",
     svyby(~z, ~d, t, svymean, na.rm = TRUE), t, "mean")
case("two", "--ids psu,ssu --strata h --fpc M,size --nest --total job --by d", svyby(~job, ~d, t, svytotal), t)
case("two", "--ids psu,ssu --strata h --fpc M,size --nest --mean y --where d=q", svymean(~y, subset(t, d == "q")), subset(t, d == "q"), "mean")
case("two", "--ids psu,ssu --strata h --fpc M,size --nest --mean y --where d=q,r",
     svymean(~y, subset(t, d %in% c("q", "r"))), subset(t, d %in% c("q", "r")), "mean")

# Strata with one cluster; the fourth is drawn whole and never lonely where M is known.
for (option in c("remove", "certainty", "adjust", "average")) {
  options(survey.lonely.psu = option)
  for (known in c("", " --fpc M")) {
    l <- svydesign(~unit, strata = ~h, weights = ~w, fpc = if (known == "") NULL else ~M, nest = TRUE, data = lonely)
    line <- paste0("--ids unit --strata h --weights w --nest", known, " --lonely ", option)
    case("lonely", paste(line, "--total y --mean y,sex"), svytotal(~y, l), l)
    case("lonely", paste(line, "--total y --mean y,sex"), svymean(~y + sex, l), l, "mean")
    case("lonely", paste(line, "--total y --by d"), svyby(~y, ~d, l, svytotal), l)
    case("lonely", paste(line, "--ratio y/x --where d=q"), svyratio(~y, ~x, subset(l, d == "q")), subset(l, d == "q"), "ratio")
  }
}
options(survey.lonely.psu = "fail")
l <- svydesign(~unit, strata = ~h, weights = ~w, fpc = ~M, nest = TRUE, data = lonely)
case("lonely", "--ids unit --strata h --weights w --nest --fpc M --mean y --where d=q", svymean(~y, subset(l, d == "q")), subset(l, d == "q"), "mean")

# Replicate weights, read from the file like anybody else's.
pairs <- read.csv("pairs.csv")
rscales <- made$jkn$rscales
read <- function(name, ...) suppressWarnings(svrepdesign(
  weights = ~w, repweights = pairs[startsWith(names(pairs), name)], data = pairs[1:9], combined.weights = TRUE, ...))
replicated <- list(
  list("--replicates brr* --replicate-type brr", read("brr", type = "BRR")),
  list("--replicates brr* --replicate-type brr --mse", read("brr", type = "BRR", mse = TRUE)),
  list("--replicates fay* --replicate-type fay --rho 0.3", read("fay", type = "Fay", rho = 0.3)),
  list("--replicates jk1* --replicate-type jk1", read("jk1", type = "JK1")),
  list("--replicates jk1* --replicate-type jk1 --scale 0.7", read("jk1", type = "JK1", scale = 0.7)),
  list(paste0("--replicates jkn* --replicate-type jkn --rscales ", paste(rscales, collapse = ",")),
       read("jkn", type = "JKn", rscales = rscales)),
  list(paste0("--replicates jkn* --replicate-type other --scale 0.9 --rscales 0,1,2,0.5,0.5,0.5,1,1"),
       read("jkn", type = "other", scale = 0.9, rscales = c(0, 1, 2, 0.5, 0.5, 0.5, 1, 1))),
  list("--replicates jkn* --replicate-type jk2", read("jkn", type = "JK2")),
  list("--replicates boot* --replicate-type bootstrap", read("boot", type = "bootstrap")),
  list("--replicates boot* --replicate-type bootstrap --scale 0.1", read("boot", type = "bootstrap", scale = 0.1)),
  list("--replicates boot* --replicate-type acs", read("boot", type = "ACS")),
  list("--replicates boot* --replicate-type acs --mse", read("boot", type = "ACS", mse = TRUE))
)
for (one in replicated) {
  each("pairs", paste("--weights w", one[[1]]), one[[2]])
  case("pairs", paste("--weights w", one[[1]], "--mean z --by job --na-rm"),
       svyby(~z, ~job, one[[2]], svymean, na.rm = TRUE), one[[2]], "mean")
}

# Known totals: one table post-stratifies, two are raked (to the end: R by itself stops at a change below 1).
cells <- expand.grid(sex = c("f", "m"), age = c("old", "young"))
cells$N <- c(150, 120, 140, 111)
invisible(keep("totals-cells", cells))
sexes <- data.frame(sex = c("f", "m"), N = c(290, 231)); ages <- data.frame(age = c("old", "young"), N = c(270, 251))
invisible(keep("totals-sex", sexes))
invisible(keep("totals-margins", rbind(cbind(sexes[1], age = NA, sexes[2]), cbind(sex = NA, ages))))
named <- function(totals) { names(totals)[ncol(totals)] <- "Freq"; totals }
raked <- function(design) suppressWarnings(  # 300 rounds, whatever the change: replicates need more than the weights
  rake(design, list(~sex, ~age), list(named(sexes), named(ages)), list(maxit = 300, epsilon = 1e-300)))
adjusted <- list(
  list("strat", "--strata h --fpc N", designs[[3]][[3]]), list("strat", "--weights odd", designs[[1]][[3]]),
  list("two", designs[[10]][[2]], designs[[10]][[3]]), list("two", designs[[9]][[2]], designs[[9]][[3]]),
  list("pairs", paste("--weights w", replicated[[3]][[1]]), replicated[[3]][[2]]),
  list("pairs", paste("--weights w", replicated[[4]][[1]]), replicated[[4]][[2]])
)
for (one in adjusted) {
  each(one[[1]], paste(one[[2]], "--totals totals-sex.csv"), postStratify(one[[3]], ~sex, named(sexes)))
  each(one[[1]], paste(one[[2]], "--totals totals-cells.csv"), postStratify(one[[3]], ~sex + age, named(cells)))
  each(one[[1]], paste(one[[2]], "--totals totals-margins.csv"), raked(one[[3]]))
}
s <- postStratify(designs[[3]][[3]], ~sex, named(sexes))
case("strat", "--strata h --fpc N --totals totals-sex.csv --mean z --by d --na-rm",
     svyby(~z, ~d, s, svymean, na.rm = TRUE), s, "mean")

write.csv(said, "expected.csv", row.names = FALSE, quote = TRUE)
writeLines(c(R.version.string, paste("survey", packageVersion("survey"))), "version.txt")
