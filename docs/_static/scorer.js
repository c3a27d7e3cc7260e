// Search results: pages for users come before internals, decisions and the changelog.
var Scorer = {
  score: (result) => {
    const [page, , , , score] = result;
    if (/^(tutorial|how-to|stores)\//.test(page)) return score + 20;
    if (/^(internals|decisions|project)\//.test(page)) return score - 20;
    return score;
  },
  // The rest is as Sphinx has it.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
