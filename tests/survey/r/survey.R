# Makes the files of this folder and what R's survey package says of them: Rscript survey.R (R, r-cran-survey).
# Each design stands as the call of R and, beside it, as the columns that the section [design] of a plan names.
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

# ---- cases

said <- NULL
domain <- function(by) apply(by, 1, function(row) paste(names(by), row, sep = "=", collapse = ";"))
case <- function(file, columns, object, kind, variable) {
  estimate <- as.vector(coef(object)); se <- as.vector(unlist(SE(object)))
  place <- ""
  if (inherits(object, "svyby")) {
    by <- object[attr(object, "svyby")$margins]
    by[] <- lapply(by, as.character)
    place <- domain(by)
  }
  if (kind == "table") place <- sub("cell", "", names(coef(object)))
  said <<- rbind(said, data.frame(
    file = file, design = columns, kind = kind, variable = variable, domain = place,
    estimate = sprintf("%.12g", estimate), se = sprintf("%.12g", se)
  ))
}
designs <- list(
  list("strat", "weights=odd", svydesign(~1, weights = ~odd, data = strat)),
  list("strat", "strata=h weights=odd", svydesign(~1, strata = ~h, weights = ~odd, data = strat)),
  list("strat", "strata=h fpc=N", svydesign(~1, strata = ~h, fpc = ~N, data = strat)),
  list("strat", "strata=h fpc=f", svydesign(~1, strata = ~h, fpc = ~f, data = strat)),
  list("two", "ids=psu strata=h weights=w nest=true",
       svydesign(~psu, strata = ~h, weights = ~w, nest = TRUE, data = two)),
  list("two", "ids=id weights=w", svydesign(~id, weights = ~w, data = two)),
  list("two", "ids=id strata=h fpc=M weights=w", svydesign(~id, strata = ~h, fpc = ~M, weights = ~w, data = two)),
  list("two", "ids=psu,ssu strata=h weights=w nest=true",
       svydesign(~psu + ssu, strata = ~h, weights = ~w, nest = TRUE, data = two))
)
for (one in designs) {
  file <- one[[1]]; columns <- one[[2]]
  design <- update(one[[3]], cell = factor(paste0("sex=", sex, ";job=", job)))
  for (name in c("y", "x")) {
    case(file, columns, svytotal(as.formula(paste0("~", name)), design), "total", name)
    case(file, columns, svymean(as.formula(paste0("~", name)), design), "mean", name)
  }
  case(file, columns, svyratio(~y, ~x, design), "ratio", "y/x")
  case(file, columns, svytotal(~cell, design), "table", "")
  case(file, columns, svyby(~y, ~sex + job, design, svytotal), "total", "y")
  case(file, columns, svyby(~x, ~sex + job, design, svymean), "mean", "x")
}
# A domain that is a stratum: what its mean is divided by is fixed by the design.
strata <- svydesign(~1, strata = ~h, fpc = ~N, data = strat)
case("strat", "strata=h fpc=N", svyby(~x, ~h, strata, svymean), "mean", "x")
write.csv(said, "expected.csv", row.names = FALSE, quote = TRUE)
writeLines(c(R.version.string, paste("survey", packageVersion("survey"))), "version.txt")
