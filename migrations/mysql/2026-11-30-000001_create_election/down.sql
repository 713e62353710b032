DROP TABLE IF EXISTS gemstone_election_leader;
DROP TABLE IF EXISTS gemstone_election_candidate;
