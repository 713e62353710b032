DROP TABLE IF EXISTS gemstone_election_tenure;
ALTER TABLE gemstone_election_leader DROP COLUMN IF EXISTS term;
ALTER TABLE gemstone_election_leader RESET (fillfactor);
ALTER TABLE gemstone_election_candidate RESET (fillfactor);
