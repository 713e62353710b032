DROP TABLE IF EXISTS gemstone_election_tenure;
ALTER TABLE gemstone_election_leader DROP COLUMN term;
